// A manifest, and the store that it describes. The input is a manifest without its hash; magic,
// length and hash are made right. Where its geometry can be laid out, a data file of that layout is
// put beside it on a simulated drive, and the store is opened and read as by `penstock inspect`; of
// each 16 inputs one is also opened as by `penstock train`, which makes spare files for commits.

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "base/timeline.hpp"
#include "cli/store_hash.hpp"
#include "cli/store_reader.hpp"
#include "fuzz/fuzz.hpp"
#include "io/page_buffer.hpp"
#include "io/sim_storage.hpp"
#include "io/store_format.hpp"
#include "io/store_impl.hpp"
#include "io/store_layout.hpp"
#include "io/store_verify.hpp"

namespace penstock::fuzz {
namespace {

constexpr std::uint64_t kLargestFile = std::uint64_t{64} << 20;
constexpr std::uint64_t kLargestRead = std::uint64_t{256} << 10;
constexpr std::size_t kLengthOffset = 48;

std::uint64_t bytes_of_files(const StoreLayout& layout) {
  std::uint64_t bytes = 0;
  for (const FileLayout& file : layout.files) bytes += std::min(file.file_bytes, kLargestFile + 1);
  return bytes;
}

void read_all(Storage& storage, std::unique_ptr<Store> store) {
  std::uint64_t bytes = 0;
  for (std::size_t block = 0; block < store->geometry().blocks.size(); ++block) {
    for (const SectionExtent& extent : store->extents(block)) bytes += extent.total_bytes();
  }
  const bool small = bytes <= kLargestRead;
  if (small) must(verify_store(*store).ok(), "a store that opens can be verified");
  auto reader = StoreReader::over(storage, std::move(store));
  if (!reader) return must_be_said(reader.error());
  if (!small) return;
  const std::atomic<bool> stop{false};
  const auto hash = hash_store(*reader.value(), stop);
  if (!hash) must_be_said(hash.error());
}

/// The data files that such a manifest belongs to, as yet unwritten.
StoreDirectories make_files(Storage& storage, const Manifest& manifest, const StoreLayout& layout) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < layout.files.size(); ++i) names.push_back("s" + std::to_string(i));
  StoreDirectories directories(std::move(names));
  OpenOptions how;
  how.create = true;
  for (std::size_t i = 0; i < layout.files.size(); ++i) {
    must(storage.make_directory(directories[i]).ok(), "directory");
    const auto file = storage.open(data_path(directories, i), how);
    const std::uint64_t bytes = layout.files[i].file_bytes;
    must(file.ok() && storage.preallocate(file.value(), bytes).ok(), "data file");
    PageBuffer pages(kHeaderBytes * kHeaderCopies);
    const DataHeader header =
        make_header(manifest.uuid, layout, i, bytes, manifest.geometry.layout_hash);
    encode_header(header, pages.first(kHeaderBytes));
    encode_header(header, pages.span().subspan(kHeaderBytes));
    must(storage.write_at(file.value(), 0, pages.span()).ok(), "headers");
    must(storage.close(file.value()).ok(), "close");
  }
  return directories;
}

void open_as_store(const Manifest& manifest, const StoreLayout& layout,
                   std::span<const std::byte> bytes) {
  Timeline timeline(1);
  auto storage = make_sim_storage(timeline);
  const StoreDirectories directories = make_files(*storage, manifest, layout);
  const ManifestName name{"", manifest.sequence, 'a', false};
  must(storage->write_file(manifest_path(directories, name), bytes).ok(), "manifest");
  StoreOptions options;
  options.lock_wait_ns = 0;
  auto store = open_store(*storage, directories, options, false);
  if (!store) return must_be_said(store.error());
  read_all(*storage, std::move(store).value());
  if (hash64(0, bytes) % 16 != 0) return;  // by the input alone, so that it can be run again
  store = open_store(*storage, directories, options, true);
  if (!store) must_be_said(store.error());
}

void try_manifest(std::span<const std::byte> bytes) {
  auto manifest = decode_manifest(bytes, "manifest");
  if (!manifest) return must_be_said(manifest.error());
  const auto again = encode_manifest(manifest.value());
  must(again.ok() &&
           std::equal(bytes.begin(), bytes.end(), again.value().begin(), again.value().end()),
       "a manifest is written in one way only");
  const auto layout = plan_layout(manifest.value().geometry, false);
  if (!layout) return must_be_said(layout.error());
  if (bytes_of_files(layout.value()) > kLargestFile) return;
  open_as_store(manifest.value(), layout.value(), bytes);
}

/// The record behind a manifest, which the input is in place of from its number of files on; where
/// that number fits, the record's hash is made right.
void try_lifetime(std::span<const std::byte> input) {
  constexpr std::size_t kManifest = 208, kHead = 24;
  std::vector<std::byte> file(kManifest + kHead + std::max<std::size_t>(input.size(), 4));
  const std::uint64_t length = kManifest;
  std::memcpy(file.data() + kLengthOffset, &length, sizeof length);
  std::memcpy(file.data() + kManifest, "PNSTKLIF",
              8);  // the manifest's hash is zero, as it is here
  std::copy(input.begin(), input.end(), file.begin() + kManifest + kHead);
  std::uint32_t files = 0;
  std::memcpy(&files, file.data() + kManifest + kHead, sizeof files);
  const std::uint64_t bytes = lifetime_record_bytes(files);
  if (bytes <= file.size() - kManifest) seal(std::span(file).subspan(kManifest, bytes));
  const auto found = find_lifetime(file);
  if (!found) return;
  std::vector<std::byte> again(file.begin(), file.begin() + kManifest);
  append_lifetime(again, *found);
  must(std::equal(again.begin(), again.end(), file.begin()), "a record is written in one way only");
}

}  // namespace
}  // namespace penstock::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using penstock::fuzz::seal;
  const auto input = penstock::fuzz::bytes_of(data, bytes);
  penstock::fuzz::try_manifest(input);
  penstock::fuzz::try_lifetime(input);
  std::vector<std::byte> frame(std::max<std::size_t>(bytes, 192) + 16);
  std::copy(input.begin(), input.end(), frame.begin());
  std::memcpy(frame.data(), "PNSTKMAN", 8);
  const std::uint64_t length = frame.size();
  std::memcpy(frame.data() + penstock::fuzz::kLengthOffset, &length, sizeof length);
  seal(frame);
  penstock::fuzz::try_manifest(frame);
  return 0;
}
