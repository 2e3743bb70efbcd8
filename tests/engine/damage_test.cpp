// Method: a store is trained for a few steps on a simulated drive and closed. Then one thing is
// damaged, the store is opened and hashed as `penstock inspect --hash` does, some of the time
// trained on, and the damage is undone, for every place: one bit in every 512-byte sector of every
// committed slot, every bit of manifests and headers, every write lost, every two blocks exchanged.
// What a reader gets is the right state or an error that names the place, never another state.
//
// PENSTOCK_DAMAGE=all takes every place. By default a seed draws some of the bits of manifests and
// headers, and of the places in the larger one of two models.
// lint: long because every kind of damage is judged by the same reader and told in the same figures

#include <cstdio>
#include <cstdlib>
#include <map>

#include "engine/simulated.hpp"
#include "io/page_buffer.hpp"
#include "io/section_sums.hpp"
#include "io/store_format.hpp"
#include "io/store_impl.hpp"
#include "io/store_verify.hpp"

namespace penstock::testing {
namespace {

constexpr std::uint64_t kSteps = 4;
constexpr std::uint64_t kSector = 512;

bool all_wanted() {
  const char* text = std::getenv("PENSTOCK_DAMAGE");
  return text != nullptr && std::string(text) == "all";
}

/// Whether this place is tried: all of them, or a drawn one in `every`.
bool wanted(std::uint64_t place, std::uint64_t every) {
  return all_wanted() || mix64(place, every, 5) % every == 0;
}

struct Tally {
  std::uint64_t places = 0, detected = 0, healed = 0, harmless = 0;
};

class DamageTest : public ::testing::Test {
 protected:
  /// Trains `kSteps` steps, each committed; keeps what the drive held after each.
  void train(ModelSpec (*model_of)(Level)) {
    model_of_ = model_of;
    setup_.queue = RunSetup::Queue::kSim;
    setup_.threads = 0;
    reference_ = std::make_unique<Reference>(model_of(Level::kWeights), script_, setup_.seed);
    sim_ = make_sim_storage(timeline_);
    ASSERT_TRUE(sim_->make_directory("/sim"));
    EXPECT_EQ(train_to(kSteps), "");
    auto store = open_store(*sim_, kSimStore, StoreOptions{}, false);
    ASSERT_TRUE(store) << store.error().message;
    store_ = std::move(store).value();
    table_ = std::make_unique<SlotTable>(store_->make_table());
  }

  /// From the store's newest commit; what the drive holds after each step is kept.
  std::string train_to(std::uint64_t last) {
    ModelSpec model = model_of_(Level::kWeights);
    TrainerWeights weights;
    auto executor = make_deterministic_executor(timeline_);
    auto communicators = make_in_process_group(1);
    const EngineParts parts{*sim_, *executor, *communicators[0],
                            [this] { return timeline_.now_ns(); }, Logger{}};
    auto engine = make_engine(parts, engine_options(setup_, model, kSimStore), model);
    if (!engine) return engine.error().message;
    Runner runner(*engine.value(), model, setup_, weights);
    for (std::uint64_t step = engine.value()->step() + 1; step <= last; ++step) {
      if (const Status done = runner.run_step(step, script_); !done) return done.error().message;
      if (const Status done = engine.value()->flush(); !done) return done.error().message;
      drive_after_[step] = bytes_of("data.0");
    }
    return {};
  }

  [[nodiscard]] std::string path(const std::string& name) const {
    return std::string(kSimStore) + "/" + name;
  }
  /// Of a manifest's file, the manifest.
  std::vector<std::byte> bytes_of(const std::string& name) {
    auto bytes = sim_->read_file(path(name), std::uint64_t{1} << 30).value();
    if (parse_manifest_name(name)) bytes.resize(manifest_in(bytes).size());
    return bytes;
  }
  void flip(const std::string& name, std::uint64_t bit) {
    ASSERT_TRUE(sim_->flip_bit(path(name), bit));
  }
  void overwrite(std::uint64_t offset, std::span<const std::byte> bytes) {
    auto file = sim_->open(path("data.0"), {});
    ASSERT_TRUE(file);
    ASSERT_TRUE(sim_->write_at(file.value(), offset, bytes));
    ASSERT_TRUE(sim_->close(file.value()));
  }
  [[nodiscard]] std::uint64_t slot_offset(std::size_t block) const {
    return store_->slot(table_->entry(block).slot).offset_bytes;
  }
  /// Bytes of a slot that its block uses.
  [[nodiscard]] std::uint64_t used_bytes(std::size_t block) const {
    std::uint64_t end = 0;
    for (const SectionExtent& extent : store_->extents(block)) {
      if (extent.total_bytes() != 0) end = extent.data_offset + extent.total_bytes();
    }
    return end;
  }

  /// Reads the damaged store whole. Empty when that gave the bits of step `step`; a wrong state, or
  /// an error of another kind than damage, is a failure of the test.
  std::string read_whole(std::uint64_t step) {
    auto content = content_of(*sim_, kSimStore);
    if (!content) {
      EXPECT_EQ(content.error().code, Errc::kCorrupt) << content.error().message;
      return content.error().message;
    }
    EXPECT_EQ(content.value().step, step);
    EXPECT_EQ(content.value().hash, expected_hash(*reference_, content.value().step))
        << "a wrong state";
    return {};
  }

  /// Damage in the newest commit's blocks: found by reading, by verifying, and by training on.
  void expect_detected(const std::string& what, bool train_on) {
    const std::string error = read_whole(kSteps);
    EXPECT_NE(error, "") << what << ": not noticed";
    EXPECT_NE(error.find("data.0 at offset "), std::string::npos) << what << ": " << error;
    EXPECT_NE(error.find("section \""), std::string::npos) << what << ": " << error;
    const auto bad = verify_store(*store_);
    EXPECT_TRUE(bad.ok() && !bad.value().empty()) << what << ": not verified";
    ++tally_.places;
    ++tally_.detected;
    if (!train_on) return;
    const std::string end = train_on_copy();
    EXPECT_NE(end, "") << what << ": trained on";
    EXPECT_NE(end.find("checksum"), std::string::npos) << what << ": " << end;
  }

  /// Trains on from a copy of the drive as it is; empty when the end has the reference's bits.
  std::string train_on_copy() {
    Timeline timeline(3);
    auto copy = make_sim_storage(timeline);
    EXPECT_TRUE(copy->make_directory("/sim"));
    EXPECT_TRUE(copy->make_directory(kSimStore));
    const std::vector<std::string> names = sim_->list(kSimStore).value();
    for (const std::string& name : names) {
      EXPECT_TRUE(copy->write_file(path(name), bytes_of(name)));
    }
    return finish_run(*copy, timeline);
  }

  std::string finish_run(SimStorage& storage, Timeline& timeline) {
    ModelSpec model = model_of_(Level::kWeights);
    TrainerWeights weights;
    auto executor = make_deterministic_executor(timeline);
    auto communicators = make_in_process_group(1);
    const EngineParts parts{storage, *executor, *communicators[0],
                            [&timeline] { return timeline.now_ns(); }, Logger{}};
    auto engine = make_engine(parts, engine_options(setup_, model, kSimStore), model);
    if (!engine) return engine.error().message;
    Runner runner(*engine.value(), model, setup_, weights);
    for (std::uint64_t step = kSteps + 1; step <= script_.steps.size(); ++step) {
      if (const Status done = runner.run_step(step, script_); !done) return done.error().message;
    }
    if (const Status done = engine.value()->flush(); !done) return done.error().message;
    engine.value().reset();
    auto content = content_of(storage, kSimStore);
    if (!content) return content.error().message;
    EXPECT_EQ(content.value().hash, expected_hash(*reference_, script_.steps.size()));
    return {};
  }

  void report(const char* what) {
    std::printf("%s: %llu places, %llu detected, %llu healed, %llu harmless\n", what,
                static_cast<unsigned long long>(tally_.places),
                static_cast<unsigned long long>(tally_.detected),
                static_cast<unsigned long long>(tally_.healed),
                static_cast<unsigned long long>(tally_.harmless));
    EXPECT_EQ(tally_.places, tally_.detected + tally_.healed + tally_.harmless);
  }

  // Every block gets a gradient in every step, so that each committed slot was just written.
  Script script_{{StepKind::kNormal, StepKind::kNormal, StepKind::kNormal, StepKind::kNormal,
                  StepKind::kNormal, StepKind::kNormal}};
  RunSetup setup_;
  ModelSpec (*model_of_)(Level) = nullptr;
  std::unique_ptr<Reference> reference_;
  Timeline timeline_{1};
  std::unique_ptr<SimStorage> sim_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<SlotTable> table_;
  std::map<std::uint64_t, std::vector<std::byte>> drive_after_;
  Tally tally_;
};

ModelSpec tiny(Level level) {
  return tiny_model(level);
}
ModelSpec many_blocks(Level level) {
  return small_model(level);
}

class DamagedBlocksTest : public DamageTest,
                          public ::testing::WithParamInterface<ModelSpec (*)(Level)> {
 protected:
  void SetUp() override { train(GetParam()); }
  /// All places of the small model, some of the large one unless all are asked for.
  [[nodiscard]] bool taken(std::uint64_t place) const {
    return GetParam() == tiny || wanted(place, 64);
  }
  [[nodiscard]] std::size_t blocks() const { return store_->geometry().blocks.size(); }
};

TEST_P(DamagedBlocksTest, ABitInAnySectorOfACommittedSlotIsFound) {
  for (std::size_t block = 0; block < blocks(); ++block) {
    for (std::size_t s = 0; s < store_->geometry().sections.size(); ++s) {
      const SectionExtent& extent = store_->extents(block)[s];
      for (std::uint64_t at = 0; at < extent.total_bytes(); at += kSector) {
        if (!taken(block * 1'000'003 + s * 1009 + at)) continue;
        const std::uint64_t bit = at * 8 + mix64(1, block * 4 + s, at) % (kSector * 8);
        const bool data = bit / 8 < extent.data_bytes;
        const std::uint64_t sums = extent.padded_bytes;
        const bool sum = bit / 8 >= sums && bit / 8 < sums + extent.tiles * 8;
        const std::string what = "block " + std::to_string(block) + " section " +
                                 std::to_string(s) + " bit " + std::to_string(bit);
        SCOPED_TRACE(what);
        const std::uint64_t place = (slot_offset(block) + extent.data_offset) * 8 + bit;
        flip("data.0", place);
        if (data || sum) {
          expect_detected(what, at % (8 * kSector) == 0);
        } else {  // padding: nobody's data, and `inspect --verify` names it all the same
          ++tally_.places;
          ++tally_.harmless;
          EXPECT_EQ(read_whole(kSteps), "");
          const auto bad = verify_store(*store_);
          ASSERT_TRUE(bad.ok() && bad.value().size() == 1);
          EXPECT_EQ(bad.value()[0].kind, SectionFaultKind::kPadding);
          EXPECT_EQ(bad.value()[0].offset_bytes, place / 8);
        }
        flip("data.0", place);
        ASSERT_FALSE(HasFailure());
      }
    }
  }
  EXPECT_EQ(read_whole(kSteps), "");
  EXPECT_GT(tally_.detected, 30U);
  EXPECT_GT(tally_.harmless, 5U);
  report("bits in sectors");
}

// A drive that said "written" and dropped it: the whole slot, one request of it, or one page.
TEST_P(DamagedBlocksTest, ALostWriteIsFound) {
  const std::vector<std::byte>& now = drive_after_.at(kSteps);
  const std::vector<std::byte>& before = drive_after_.at(kSteps - 1);
  for (std::size_t block = 0; block < blocks(); ++block) {
    const std::uint64_t slot = slot_offset(block);
    const auto& extents = store_->extents(block);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> lost = {{0, used_bytes(block)}};
    for (const SectionExtent& extent : extents) {
      lost.emplace_back(extent.data_offset, extent.padded_bytes);
      lost.emplace_back(extent.sums_offset, extent.sums_bytes);
    }
    for (std::uint64_t page = 0; page < used_bytes(block); page += kPageBytes) {
      lost.emplace_back(page, kPageBytes);
    }
    for (const auto& [offset, bytes] : lost) {
      if (!taken(block * 1'000'003 + offset + bytes)) continue;
      const std::span<const std::byte> old = std::span(before).subspan(slot + offset, bytes);
      const std::span<const std::byte> good = std::span(now).subspan(slot + offset, bytes);
      if (std::memcmp(old.data(), good.data(), bytes) == 0) continue;
      const std::string what = "block " + std::to_string(block) + " lost " + std::to_string(bytes) +
                               " bytes at " + std::to_string(offset);
      overwrite(slot + offset, old);
      expect_detected(what, bytes > kPageBytes);
      overwrite(slot + offset, good);
      ASSERT_FALSE(HasFailure());
    }
  }
  EXPECT_EQ(read_whole(kSteps), "");
  EXPECT_GT(tally_.detected, 20U);
  report("lost writes");
}

// A write that went elsewhere, whole and with its own sums: the victim is found as well as the
// block whose place kept the older version.
TEST_P(DamagedBlocksTest, AMisdirectedWriteIsFound) {
  const std::vector<std::byte>& now = drive_after_.at(kSteps);
  const std::vector<std::byte>& before = drive_after_.at(kSteps - 1);
  const std::uint64_t slot_bytes = store_->slot_bytes();
  const auto slot = [&](const std::vector<std::byte>& drive, std::size_t block) {
    return std::span(drive).subspan(slot_offset(block), slot_bytes);
  };
  const auto bad_blocks = [&] {
    std::vector<std::size_t> found;
    const std::vector<BadTile> bad = verify_store(*store_).value();
    for (const BadTile& tile : bad) {
      if (tile.kind == SectionFaultKind::kPadding) continue;
      if (found.empty() || found.back() != tile.block) found.push_back(tile.block);
    }
    return found;
  };
  for (std::size_t a = 0; a < blocks(); ++a) {
    for (std::size_t b = 0; b < blocks(); ++b) {
      if (a == b || !taken(a * 1009 + b)) continue;
      const std::vector<std::size_t> both = {std::min(a, b), std::max(a, b)};
      const std::string what = "block " + std::to_string(a) + " over " + std::to_string(b);
      overwrite(slot_offset(b), slot(now, a));  // a's write went over b ...
      expect_detected(what, false);
      EXPECT_EQ(bad_blocks(), std::vector<std::size_t>{b});
      overwrite(slot_offset(a), slot(before, a));  // ... and a's place has what was there
      expect_detected(what + ", not at its own place", false);
      EXPECT_EQ(bad_blocks(), both);
      overwrite(slot_offset(a), slot(now, b));  // two writes exchanged
      expect_detected("exchanged: " + what, b == (a + 1) % blocks());
      EXPECT_EQ(bad_blocks(), both);
      overwrite(slot_offset(a), slot(now, a));
      overwrite(slot_offset(b), slot(now, b));
      ASSERT_FALSE(HasFailure());
    }
  }
  EXPECT_EQ(read_whole(kSteps), "");
  report("misdirected writes");
}

TEST_P(DamagedBlocksTest, BitsThatTheCommitDoesNotNameChangeNothing) {
  std::vector<bool> named(store_->slot_count(), false);
  for (std::size_t block = 0; block < blocks(); ++block) named[table_->entry(block).slot] = true;
  for (SlotIndex slot = 0; slot < named.size(); ++slot) {
    if (named[slot]) continue;
    for (std::uint64_t at = 0; at < store_->slot_bytes(); at += kSector) {
      if (!taken(slot * 1'000'003 + at)) continue;
      const std::uint64_t place =
          (store_->slot(slot).offset_bytes + at) * 8 + mix64(2, slot, at) % 4096;
      flip("data.0", place);
      ++tally_.places;
      ++tally_.harmless;
      EXPECT_EQ(read_whole(kSteps), "");
      EXPECT_TRUE(verify_store(*store_).value().empty());
      flip("data.0", place);
      ASSERT_FALSE(HasFailure());
    }
  }
  report("bits in free slots");
}

INSTANTIATE_TEST_SUITE_P(Model, DamagedBlocksTest, ::testing::Values(&tiny, &many_blocks),
                         [](const auto& info) {
                           return std::string(info.param == &tiny ? "Tiny" : "ManyBlocks");
                         });

// --- manifests and headers -----------------------------------------------------------------------

class DamagedFramesTest : public DamageTest {
 protected:
  void SetUp() override { train(&tiny); }

  /// The store opens at `step` with its bits, and says that `damaged` was not used.
  void expect_healed(std::uint64_t step, const std::string& damaged) {
    auto store = open_store(*sim_, kSimStore, StoreOptions{}, true);
    ASSERT_TRUE(store) << store.error().message;
    EXPECT_NE(store.value()->open_note().find(damaged), std::string::npos)
        << "note: " << store.value()->open_note();
    store.value().reset();
    EXPECT_EQ(read_whole(step), "");
    ++tally_.places;
    ++tally_.healed;
  }

  std::string newest(char copy) { return "manifest." + std::to_string(kSteps) + "." + copy; }
};

TEST_F(DamagedFramesTest, AnyBitOfAManifestIsFoundAndTheOtherCopyUsed) {
  for (const char copy : {'a', 'b'}) {
    const std::uint64_t bits = bytes_of(newest(copy)).size() * 8;
    for (std::uint64_t bit = 0; bit < bits; ++bit) {
      if (!wanted(bit + static_cast<std::uint64_t>(copy), bit < 2048 ? 4 : 16)) continue;
      flip(newest(copy), bit);
      if (copy == 'a') {
        expect_healed(kSteps, "manifest.4.a");
      } else {  // the first copy is whole: the second is not looked at
        ++tally_.places;
        ++tally_.harmless;
        EXPECT_EQ(read_whole(kSteps), "");
      }
      flip(newest(copy), bit);
      ASSERT_FALSE(HasFailure()) << "copy " << copy << " bit " << bit;
    }
  }
  report("bits of one manifest");
}

TEST_F(DamagedFramesTest, AnyBitInBothManifestsLeadsToTheOlderCommit) {
  const std::uint64_t bits = bytes_of(newest('a')).size() * 8;
  for (std::uint64_t bit = 0; bit < bits; ++bit) {
    if (!wanted(bit, bit < 2048 ? 4 : 16)) continue;
    const std::uint64_t other = mix64(7, bit, 0) % bits;
    flip(newest('a'), bit);
    flip(newest('b'), other);
    expect_healed(kSteps - 1, "step 3 was used instead, all its blocks were verified");
    flip(newest('a'), bit);
    flip(newest('b'), other);
    ASSERT_FALSE(HasFailure()) << "bits " << bit << " and " << other;
  }
  report("bits of both manifests");
}

// The older commit counts only when each of its blocks verifies.
TEST_F(DamagedFramesTest, AnOlderCommitWithABadBlockIsRefused) {
  const auto older = decode_manifest(bytes_of("manifest.3.a"), "manifest.3.a");
  ASSERT_TRUE(older);
  for (const char copy : {'a', 'b'}) flip(newest(copy), 999);
  ASSERT_EQ(read_whole(kSteps - 1), "");
  for (std::size_t block = 0; block < older.value().table.size(); ++block) {
    const SlotEntry& entry = older.value().table[block].entry;
    for (std::size_t s = 0; s < store_->geometry().sections.size(); ++s) {
      const SectionExtent& extent = store_->extents(block)[s];
      const std::uint64_t bit = mix64(8, block, s) % (extent.data_bytes * 8);
      const std::uint64_t place =
          (store_->slot(entry.slot).offset_bytes + extent.data_offset) * 8 + bit;
      flip("data.0", place);
      const std::string error = read_whole(kSteps - 1);
      EXPECT_NE(error.find("no longer whole"), std::string::npos) << error;
      ++tally_.places;
      ++tally_.detected;
      flip("data.0", place);
      ASSERT_FALSE(HasFailure()) << "block " << block << " section " << s;
    }
  }
  report("bits of an older commit");
}

TEST_F(DamagedFramesTest, AnyBitOfAHeaderIsFoundAndTheOtherCopyUsed) {
  for (const std::uint64_t copy : {0U, 1U}) {
    for (std::uint64_t bit = 0; bit < kHeaderBytes * 8; ++bit) {
      const bool zeros = bit >= 112 * 8 && bit < 4080 * 8;
      if (!wanted(bit + copy, zeros ? 64 : 2)) continue;
      const std::uint64_t place = copy * kHeaderBytes * 8 + bit;
      flip("data.0", place);
      expect_healed(kSteps, "header at " + std::to_string(copy * kHeaderBytes));
      flip("data.0", place);
      ASSERT_FALSE(HasFailure()) << "copy " << copy << " bit " << bit;
    }
  }
  report("bits of one header");
}

TEST_F(DamagedFramesTest, AnyBitInBothHeadersIsRefused) {
  for (std::uint64_t bit = 0; bit < kHeaderBytes * 8; ++bit) {
    const bool zeros = bit >= 112 * 8 && bit < 4080 * 8;
    if (!wanted(bit, zeros ? 64 : 2)) continue;
    flip("data.0", bit);
    flip("data.0", kHeaderBytes * 8 + bit);
    const std::string error = read_whole(kSteps);
    EXPECT_NE(error.find("header at 0"), std::string::npos) << error;
    ++tally_.places;
    ++tally_.detected;
    flip("data.0", bit);
    flip("data.0", kHeaderBytes * 8 + bit);
    ASSERT_FALSE(HasFailure()) << "bit " << bit;
  }
  report("bits of both headers");
}

}  // namespace
}  // namespace penstock::testing
