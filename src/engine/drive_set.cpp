#include "engine/drive_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "base/units.hpp"
#include "base/with_memory.hpp"
#include "io/page_buffer.hpp"
#include "io/store_layout.hpp"

namespace penstock {
namespace {

constexpr std::uint32_t kLongestRound = 64;  // blocks until the dealing repeats
constexpr double kGoodEnough = 0.98;         // of the drives' sum
constexpr std::uint64_t kProbeBytes = 64 * kMiB;
constexpr std::uint64_t kProbeMemory = 8 * kMiB;
constexpr std::uint64_t kProbeShareOfFree = 4;  // at most a quarter of what is free

/// Bytes a second of a drive in the mix; the harmonic model.
double rate_of(const DriveOffer& offer, double read_share) {
  const double read = std::max(offer.read_bytes_per_second, 1.0);
  const double write = std::max(offer.write_bytes_per_second, 1.0);
  return 1.0 / (read_share / read + (1.0 - read_share) / write);
}

/// Each directory's part of the whole: the drives' rates, then what room allows.
std::vector<double> parts_of(std::span<const DriveOffer> offers, double read_share,
                             std::uint64_t needed_bytes) {
  std::vector<double> parts;
  for (const DriveOffer& offer : offers) {
    const auto together = std::count_if(offers.begin(), offers.end(), [&](const DriveOffer& other) {
      return other.drive == offer.drive;
    });
    parts.push_back(rate_of(offer, read_share) / static_cast<double>(together));
  }
  std::vector<bool> full(parts.size(), false);
  double open_room = 1.0;  // of the whole, not yet given to full drives
  for (std::size_t round = 0; round < parts.size(); ++round) {
    double sum = 0.0;
    for (std::size_t i = 0; i < parts.size(); ++i) sum += full[i] ? 0.0 : parts[i];
    bool changed = false;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (full[i] || sum <= 0.0) continue;
      parts[i] *= open_room / sum;
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const double room = 0.98 * static_cast<double>(offers[i].free_bytes) /
                          static_cast<double>(std::max<std::uint64_t>(needed_bytes, 1));
      if (full[i] || parts[i] <= room) continue;
      parts[i] = room;
      full[i] = changed = true;
      open_room -= room;
    }
    if (!changed || open_room <= 0.0) break;
  }
  return parts;
}

/// How much of the drives' sum small whole numbers keep: a step ends with the last drive.
double kept(const std::vector<std::uint32_t>& shares, const std::vector<double>& parts) {
  const double dealt = std::accumulate(shares.begin(), shares.end(), 0.0);
  double slowest = 0.0, sum = 0.0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    slowest = std::max(slowest, shares[i] / std::max(parts[i], 1e-9));
    sum += parts[i];
  }
  return dealt / slowest / sum;
}

std::vector<std::uint32_t> whole_shares(const std::vector<double>& parts) {
  const double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
  std::vector<std::uint32_t> best(parts.size(), 1);
  double best_kept = kept(best, parts);
  for (auto round = static_cast<std::uint32_t>(parts.size()); round <= kLongestRound; ++round) {
    if (best_kept >= kGoodEnough) break;
    std::vector<std::uint32_t> shares;
    for (const double part : parts) {
      shares.push_back(std::max(1U, static_cast<std::uint32_t>(part / sum * round + 0.5)));
    }
    if (const double now = kept(shares, parts); now > best_kept) {
      best_kept = now;
      best = std::move(shares);
    }
  }
  return best;
}

/// The directory, or the nearest above it that is there already.
Result<std::string> existing(Storage& storage, const std::string& directory) {
  std::filesystem::path path = std::filesystem::path(directory).lexically_normal();
  while (true) {
    PENSTOCK_TAKE(there, storage.exists(path.empty() ? "." : path.string()));
    if (there) return path.empty() ? std::string(".") : path.string();
    if (!path.has_relative_path()) break;
    path = path.parent_path();
  }
  return make_error(Errc::kIo, fmt::format("{} does not exist; name one that does", directory));
}

Result<DriveOffer> measure_one(Storage& storage, const std::string& wanted, double seconds,
                               const QueueOptions& options, std::span<const DriveOffer> known) {
  PENSTOCK_TAKE(directory, existing(storage, wanted));
  DriveOffer offer;
  PENSTOCK_TAKE(free, storage.free_bytes(directory));
  offer.free_bytes = free;
  PENSTOCK_TAKE(file, storage.open(directory, {.temporary = true}));
  struct Closing {
    Storage& storage;
    FileId file;
    ~Closing() { (void)storage.close(file); }
  } const closing{storage, file};
  offer.drive = storage.drive(file);
  for (const DriveOffer& other : known) {
    if (other.drive != offer.drive) continue;
    offer.read_bytes_per_second = other.read_bytes_per_second;
    offer.write_bytes_per_second = other.write_bytes_per_second;
    return offer;
  }
  const std::uint64_t bytes =
      std::min(kProbeBytes, free / kProbeShareOfFree / (2 * kMiB) * (2 * kMiB));
  if (bytes < 2 * kMiB) {
    return make_error(Errc::kNoSpace, fmt::format("the drive of {} has only {} free; leave it out",
                                                  directory, format_bytes(free)));
  }
  PENSTOCK_CHECK_OK(storage.preallocate(file, bytes));
  PageBuffer memory(kProbeMemory);
  if (memory.empty()) {
    return make_error(Errc::kNoMemory,
                      fmt::format("there are no {} of memory to measure drives with; {}",
                                  format_bytes(kProbeMemory), kMoreMemory));
  }
  // The first pass only makes the space written; a store's slots are in steady state.
  const DriveRegion region{file, 0, bytes};
  for (const double length : {seconds / 2, seconds}) {
    PENSTOCK_TAKE(rates, measure_drives(storage, {&region, 1}, memory.span(), length, options));
    offer.read_bytes_per_second = rates.read_bytes_per_second;
    offer.write_bytes_per_second = rates.write_bytes_per_second;
  }
  return offer;
}

}  // namespace

DriveShares deal_shares(std::span<const DriveOffer> offers,
                        const std::vector<std::string>& directories, double read_share,
                        std::uint64_t needed_bytes) {
  const std::vector<double> parts = parts_of(offers, read_share, needed_bytes);
  DriveShares result;
  result.shares = whole_shares(parts);
  const std::uint32_t sum = std::accumulate(result.shares.begin(), result.shares.end(), 0U);
  for (std::size_t i = 0; i < offers.size(); ++i) {
    const DriveOffer& offer = offers[i];
    result.words +=
        fmt::format("{}{} of {} blocks to {} ({:.0f} MB/s read, {:.0f} MB/s written",
                    i == 0 ? "" : ", ", result.shares[i], sum, directories[i],
                    offer.read_bytes_per_second * 1e-6, offer.write_bytes_per_second * 1e-6);
    const auto twin = std::find_if(offers.begin(), offers.end(), [&](const DriveOffer& other) {
      return other.drive == offer.drive;
    });
    const auto first = static_cast<std::size_t>(twin - offers.begin());
    if (first != i) result.words += fmt::format(", on one drive with {}", directories[first]);
    const double fast = rate_of(offer, read_share);
    double all = 0.0;
    for (const DriveOffer& other : offers) all += rate_of(other, read_share);
    if (first == i && parts[i] < 0.95 * fast / all) {
      result.words += fmt::format(", only {} free", format_bytes(offer.free_bytes));
    }
    result.words += ")";
  }
  return result;
}

Result<std::vector<DriveOffer>> measure_offers(Storage& storage,
                                               const std::vector<std::string>& directories,
                                               double seconds, const QueueOptions& options) {
  std::vector<DriveOffer> offers;
  for (const std::string& directory : directories) {
    auto offer = measure_one(storage, directory, seconds, options, offers);
    if (!offer) return std::move(offer).error().in("measuring the drive of " + directory);
    offers.push_back(std::move(offer).value());
  }
  return offers;
}

Result<DriveShares> measure_shares(Storage& storage, const StoreDirectories& directories,
                                   StoreGeometry geometry, bool scratch, double read_share,
                                   double seconds, const QueueOptions& options) {
  geometry.drives.assign(directories.size(), 1);
  PENSTOCK_TAKE(layout, plan_layout(geometry, scratch));
  std::uint64_t needed = 0;
  for (const FileLayout& file : layout.files) needed += file.file_bytes;
  PENSTOCK_TAKE(offers, measure_offers(storage, directories.all(), seconds, options));
  return deal_shares(offers, directories.all(), read_share, needed);
}

}  // namespace penstock
