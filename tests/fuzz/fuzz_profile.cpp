// profile.toml, which its user may have edited.

#include <bit>

#include "fuzz/fuzz.hpp"
#include "topo/drive_profile.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using penstock::fuzz::must;
  const auto profiles = penstock::parse_profiles(penstock::fuzz::text_of(data, bytes));
  if (!profiles) {
    penstock::fuzz::must_be_said(profiles.error());
    return 0;
  }
  must(!profiles.value().empty(), "a profile that is accepted has a drive");
  for (const penstock::DriveProfile& profile : profiles.value()) {
    const penstock::QueueTuning& tuning = profile.tuning;
    must(tuning.piece_bytes <= penstock::kMostProfilePiece &&
             tuning.read_credit_bytes <= penstock::kMostProfileCredit &&
             tuning.write_credit_bytes <= penstock::kMostProfileCredit,
         "settings are within their limits");
    (void)penstock::words_of(tuning);
  }
  // What was read is written so that it is read as the same.
  const std::string text = penstock::format_profiles(profiles.value());
  const auto again = penstock::parse_profiles(text);
  must(again.ok(), "what is written can be read");
  must(penstock::format_profiles(again.value()) == text, "and is the same");
  return 0;
}
