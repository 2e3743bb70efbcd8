// Method: directories with what killed programs leave and with what only looks like it; after each
// call the whole tree is compared.

#include "cli/clean.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "cli/export_target.hpp"
#include "cli/store_case.hpp"
#include "io/store_format.hpp"
#include "io/store_owner.hpp"

namespace penstock::test {
namespace {

namespace fs = std::filesystem;

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

class CleanTest : public StoreCase {
 protected:
  void SetUp() override {
    fs::create_directory(work_);
    directory_ = work_ + "/run";
  }

  Outcome clean(std::vector<const char*> flags = {}) {
    std::vector<const char*> arguments = {"clean", work_.c_str()};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return run_cli(std::move(arguments));
  }
  json items(std::vector<const char*> flags = {}) {
    flags.push_back("--json");
    const Outcome outcome = clean(std::move(flags));
    EXPECT_EQ(outcome.code, ExitCode::kOk) << outcome.err;
    const json value = json::parse(outcome.out);
    EXPECT_EQ(value["schema"], "penstock.clean/1");
    return value["items"];
  }
  /// Names below the directory, and the size of files.
  std::map<std::string, std::uint64_t> tree() const {
    std::map<std::string, std::uint64_t> found;
    for (const auto& entry : fs::recursive_directory_iterator(work_)) {
      found[fs::relative(entry.path(), work_).string()] =
          entry.is_regular_file() && !entry.is_symlink() ? entry.file_size() : 0;
    }
    return found;
  }
  void create_unfinished(const std::string& directory) {
    StoreGeometry geometry;
    geometry.sections = {{"hi", "bf16", true, 2 * kTileElements}};
    geometry.blocks = {{1, {100}, false}};
    geometry.description = "{}";
    auto created = create_store(*storage_, directory, geometry, {});
    ASSERT_TRUE(created) << created.error().message;
    store_ = std::move(created).value();
  }
  /// Files that are not ours although their names are.
  void add_foreign(const std::string& directory) {
    for (const char* name : {"data.1", "manifest.7.a", "manifest.7.b.tmp", "pin.x.a", "owner.json~",
                             "notes.txt", "manifest.07.a", "data.0.bak", "spare.99.a"}) {
      write_text(directory + "/" + name, "mine");
    }
  }

  const std::string work_ = temporary_.path() + "/work";  // stores are made in it
};

TEST_F(CleanTest, KeepsWholeStoresUnlessAsked) {
  make_store({kGroupElements});
  add_foreign(directory_);
  const auto before = tree();
  for (const auto& flags : {std::vector<const char*>{}, {"--yes"}, {"--stores"}}) {
    const json found = items(flags);
    ASSERT_EQ(found.size(), 1U) << found.dump();
    EXPECT_EQ(found[0]["kind"], "store");
    EXPECT_EQ(found[0]["removed"], false);
    EXPECT_EQ(tree(), before);
  }
  const json found = items({"--stores", "--yes"});
  EXPECT_EQ(found[0]["removed"], true);
  auto expected = before;
  std::erase_if(expected, [](const auto& file) {
    return file.first == "run/data.0" || file.first == "run/owner.json" ||
           file.first == "run/manifest.0.a" || file.first == "run/manifest.0.b" ||
           (file.first.starts_with("run/spare.") && file.first != "run/spare.99.a");
  });
  EXPECT_EQ(tree(), expected);
  EXPECT_EQ(items({"--stores", "--yes"}).size(), 0U);
}

TEST_F(CleanTest, ShowsSizesAndWhatToDo) {
  create_unfinished(directory_);
  store_.reset();
  const Outcome outcome = clean();
  EXPECT_EQ(outcome.code, ExitCode::kOk);
  EXPECT_EQ(outcome.err, "");
  for (const char* part : {"to remove", "unfinished store", "MiB", "run (8 files)",
                           "its creation did not finish", "nothing was removed, --yes"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << " in " << outcome.out;
  }
  EXPECT_NE(clean({"--yes"}).out.find("removed "), std::string::npos);
  EXPECT_NE(clean().out.find("nothing to remove"), std::string::npos);
}

TEST_F(CleanTest, RemovesUnfinishedStoresAndNothingElse) {
  create_unfinished(directory_);
  store_.reset();
  auto expected = tree();
  std::erase_if(expected, [](const auto& file) { return file.first != "run"; });
  add_foreign(directory_);
  // By its name one is a manifest and one a checkpoint: then there was a commit.
  for (const char* name : {"manifest.7.a", "pin.x.a"}) {
    EXPECT_EQ(items()[0]["kind"], "damaged store");
    fs::remove(directory_ + "/" + name);
  }
  const auto before = tree();
  EXPECT_EQ(items()[0]["kind"], "unfinished store");
  EXPECT_EQ(tree(), before) << "nothing without --yes";
  EXPECT_EQ(items({"--yes"})[0]["removed"], true);
  const auto after = tree();
  EXPECT_EQ(after.size(), before.size() - 8);  // with six spares
  EXPECT_FALSE(after.contains("run/data.0"));
  EXPECT_FALSE(after.contains("run/owner.json"));
}

TEST_F(CleanTest, LeavesACreationUnderWayAlone) {
  create_unfinished(directory_);
  const auto before = tree();
  const json found = items({"--yes", "--stores"});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0]["why"], "it is in use");
  EXPECT_EQ(tree(), before);
  // One that has only begun has no file to lock.
  store_.reset();
  fs::remove(directory_ + "/data.0");
  EXPECT_EQ(items({"--yes"})[0]["why"], "it is in use");
  StoreOwner dead = this_process();
  dead.start_time += 1;
  ASSERT_TRUE(write_owner(*storage_, directory_, dead));
  EXPECT_EQ(items({"--yes"})[0]["removed"], true);
  EXPECT_FALSE(fs::exists(directory_ + "/owner.json"));
}

TEST_F(CleanTest, RemovesACreationWithoutHeadersOnlyWhereItIsMarked) {
  fs::create_directory(directory_);
  fs::create_directory(work_ + "/foreign");
  StoreOwner dead = this_process();
  dead.start_time += 1;
  ASSERT_TRUE(write_owner(*storage_, directory_, dead));
  for (const std::string& directory : {directory_, work_ + "/foreign"}) {
    write_text(directory + "/data.0", "");
    fs::resize_file(directory + "/data.0", 1 << 20);
  }
  EXPECT_EQ(items({"--yes"}).size(), 1U);
  EXPECT_FALSE(fs::exists(directory_ + "/data.0"));
  EXPECT_TRUE(fs::exists(work_ + "/foreign/data.0"));
}

TEST_F(CleanTest, RemovesTemporariesOfAWholeStoreThatNobodyUses) {
  make_store({kGroupElements});
  const auto whole = tree();
  for (const char* name : {"manifest.4.a.tmp", "pin.best.b.tmp", "owner.json.tmp"}) {
    write_text(directory_ + "/" + name, "");
  }
  write_text(directory_ + "/manifest.4.b.tmp", "PNSTKMAN and more");
  write_text(directory_ + "/manifest.5.b.tmp", "not ours");
  commit_next(kFirstStep + 1);  // held open; removes the temporaries of manifests that it knows
  write_text(directory_ + "/manifest.9.b.tmp", "PNSTKMAN and more");
  const auto before = tree();
  for (const json& item : items({"--yes"})) EXPECT_EQ(item["why"], "it is in use");
  EXPECT_EQ(tree(), before);
  store_.reset();
  const json found = items({"--yes"});
  ASSERT_EQ(found.size(), 2U) << found.dump();
  const auto after = tree();
  for (const auto& [name, bytes] : before) {
    const bool temporary = name.ends_with(".tmp") && name != "run/manifest.5.b.tmp";
    EXPECT_EQ(after.contains(name), !temporary) << name;
  }
  const Outcome inspected =
      run_cli({"inspect", directory_.c_str(), "--verify", "--hash", "--json"});
  EXPECT_EQ(json::parse(inspected.out)["hash"], expected_hash(kFirstStep + 1)) << inspected.err;
}

// A store over two drives has its commits elsewhere: one directory of it alone proves nothing.
TEST_F(CleanTest, JudgesStoresOverSeveralDrivesOnlyWhole) {
  const auto write_data = [&](const std::string& name, std::uint32_t index) {
    fs::create_directory(work_ + "/" + name);
    DataHeader header;
    header.uuid = {1, 2};
    header.file_index = index;
    header.file_count = 2;
    std::vector<std::byte> page(kHeaderBytes);
    encode_header(header, page);
    write_text(work_ + "/" + name + "/data." + std::to_string(index),
               std::string(reinterpret_cast<const char*>(page.data()), page.size()));
    for (const char* number : {"0", "1", "2"}) {  // as a creation makes them for manifests
      const std::string spare = std::string("/spare.") + number + (index == 0 ? ".a" : ".b");
      write_text(work_ + "/" + name + spare, std::string(4096, '\0'));
    }
  };
  write_data("second", 1);
  json found = items({"--yes", "--stores"});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0]["kind"], "store");
  EXPECT_EQ(found[0]["removed"], false);
  EXPECT_NE(found[0]["why"].get<std::string>().find("name all of them"), std::string::npos);
  write_data("first", 0);
  found = items({"--yes"});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0]["kind"], "unfinished store");
  EXPECT_EQ(found[0]["removed"], true);
  EXPECT_FALSE(fs::exists(work_ + "/first/data.0"));
  EXPECT_FALSE(fs::exists(work_ + "/second/data.1"));
}

TEST_F(CleanTest, FollowsNoLinks) {
  const std::string elsewhere = temporary_.path() + "/elsewhere";
  fs::create_directory(elsewhere);
  create_unfinished(elsewhere);
  store_.reset();
  fs::create_directory_symlink(elsewhere, work_ + "/link");
  fs::create_directory(directory_);
  StoreOwner dead = this_process();
  dead.start_time += 1;
  ASSERT_TRUE(write_owner(*storage_, directory_, dead));
  fs::create_symlink(elsewhere + "/data.0", directory_ + "/data.0");
  fs::create_symlink(elsewhere + "/owner.json", directory_ + "/owner.json.tmp");
  fs::create_symlink(elsewhere + "/data.0", work_ + "/x.penstock-export");
  const json found = items({"--yes", "--stores"});
  ASSERT_EQ(found.size(), 1U) << found.dump();  // the mark itself
  EXPECT_TRUE(fs::exists(elsewhere + "/data.0"));
  EXPECT_TRUE(fs::exists(elsewhere + "/owner.json"));
  EXPECT_TRUE(fs::is_symlink(directory_ + "/data.0"));
  EXPECT_TRUE(fs::is_symlink(work_ + "/x.penstock-export"));
  const std::string link = work_ + "/link";
  for (const std::string& path : {link, link + "/"}) {
    const Outcome outcome = run_cli({"clean", path.c_str(), "--yes"});
    EXPECT_EQ(outcome.code, ExitCode::kUsage);
    EXPECT_NE(outcome.err.find("links are not followed"), std::string::npos) << outcome.err;
  }
}

TEST_F(CleanTest, RemovesUnfinishedExports) {
  const std::string place = work_ + "/model";
  const std::string temporary = place + std::string(kExportSuffix);
  const std::vector<ExportFile> files = {{"model.safetensors", 100}, {"config.json", 10}};
  {
    auto target = ExportTarget::begin(place, false, files);
    ASSERT_TRUE(target) << target.error().message;
    auto file = target.value()->create(files[0]);
    ASSERT_TRUE(file);
    ASSERT_TRUE(file.value().append("x"));
    ASSERT_TRUE(file.value().finish());
    const json found = items({"--yes"});
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0]["why"], "it is in use");
    fs::copy(temporary, work_ + "/killed" + std::string(kExportSuffix));  // as a kill leaves it
  }
  EXPECT_FALSE(fs::exists(temporary)) << "an export that fails removes what it made";
  const std::string killed = work_ + "/killed" + std::string(kExportSuffix);
  write_text(killed + "/notes.txt", "mine");
  ASSERT_EQ(items({"--yes"}).size(), 1U);
  EXPECT_EQ(tree(), (std::map<std::string, std::uint64_t>{
                        {"killed.penstock-export", 0}, {"killed.penstock-export/notes.txt", 4}}));
  fs::remove(killed + "/notes.txt");
  ASSERT_EQ(items({"--yes"}).size(), 1U);
  EXPECT_TRUE(tree().empty()) << "the directory was the export's";
}

TEST_F(CleanTest, RemovesOnlyWhatTheMarkOfAnExportLists) {
  const std::string temporary = work_ + "/model" + std::string(kExportSuffix);
  const std::string mark = temporary + "/" + std::string(kExportMark);
  fs::create_directory(temporary);
  write_text(work_ + "/outside", "mine");
  write_text(temporary + "/model.safetensors", "x");
  for (const char* text : {"{}", "[]", "nonsense", R"({"penstock":"import","files":["a"]})",
                           R"({"penstock":"export","files":"model.safetensors"})",
                           R"({"penstock":1,"files":["model.safetensors"]})"}) {
    write_text(mark, text);
    EXPECT_EQ(items({"--yes"}).size(), 0U) << text;
  }
  write_text(mark, R"({"penstock":"export","files":["../outside","..",".","",1,"other"]})");
  EXPECT_EQ(items({"--yes"}).size(), 1U);
  EXPECT_TRUE(fs::exists(work_ + "/outside"));
  EXPECT_TRUE(fs::exists(temporary + "/model.safetensors"));
  EXPECT_FALSE(fs::exists(mark));
}

TEST_F(CleanTest, RemovesUnfinishedSingleFiles) {
  const std::string suffix(kExportSuffix);
  const std::string start = std::string("\x40\0\0\0\0\0\0\0", 8) +
                            R"({"__metadata__":{"format":"pt","penstock":"export"}})";
  write_text(work_ + "/a.safetensors" + suffix, start);
  write_text(work_ + "/empty.safetensors" + suffix, "");
  write_text(work_ + "/foreign" + suffix, "mine");
  write_text(work_ + "/b.safetensors", start);  // finished
  write_text(work_ + "/c.safetensors" + suffix, start);
  const int descriptor = ::open((work_ + "/c.safetensors" + suffix).c_str(), O_RDONLY);
  ASSERT_EQ(::flock(descriptor, LOCK_EX | LOCK_NB), 0);  // being written
  EXPECT_EQ(items({"--yes"}).size(), 3U);
  ::close(descriptor);
  std::set<std::string> names;
  for (const auto& [name, bytes] : tree()) names.insert(name);
  EXPECT_EQ(names,
            (std::set<std::string>{"b.safetensors", "c.safetensors" + suffix, "foreign" + suffix}));
}

TEST_F(CleanTest, TakesEachDirectoryOnce) {
  create_unfinished(directory_);
  store_.reset();
  const Outcome outcome =
      run_cli({"clean", work_.c_str(), "--json", directory_.c_str(), directory_.c_str()});
  EXPECT_EQ(outcome.code, ExitCode::kOk);
  EXPECT_EQ(json::parse(outcome.out)["items"].size(), 1U);
  const Outcome none = run_cli({"clean", (work_ + "/none").c_str()});
  EXPECT_EQ(none.code, ExitCode::kUsage);
  EXPECT_NE(none.err.find("No such file"), std::string::npos) << none.err;
  EXPECT_EQ(run_cli({"clean"}).code, ExitCode::kUsage);
}

}  // namespace
}  // namespace penstock::test
