// owner.json, which any process may have written.

#include "base/timeline.hpp"
#include "fuzz/fuzz.hpp"
#include "io/sim_storage.hpp"
#include "io/store_owner.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  penstock::Timeline timeline(1);
  auto storage = penstock::make_sim_storage(timeline);
  penstock::fuzz::must(
      storage->write_file("owner.json", penstock::fuzz::bytes_of(data, bytes)).ok(), "file");
  const auto owner = penstock::read_owner(*storage, "");
  if (!owner) {
    penstock::fuzz::must_be_said(owner.error());
    return 0;
  }
  (void)penstock::is_running(owner.value());
  return 0;
}
