#include "train/data.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace penstock {
namespace {

// Files of the test live in a directory of its own.
class DataTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        std::filesystem::temp_directory_path() / ("penstock_data_" + std::to_string(::getpid()));
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string write(const std::string& name, const void* bytes, std::size_t count) {
    const std::string path = (directory_ / name).string();
    std::ofstream(path, std::ios::binary)
        .write(static_cast<const char*>(bytes), static_cast<std::streamsize>(count));
    return path;
  }
  std::string write_bytes(std::size_t count) {
    std::string text(count, '\0');
    for (std::size_t i = 0; i < count; ++i) text[i] = static_cast<char>(i * 7 + i / 251);
    return write("bytes", text.data(), text.size());
  }
  template <class T>
  std::string write_tokens(const std::vector<T>& tokens) {
    return write("tokens", tokens.data(), tokens.size() * sizeof(T));
  }
  template <class T>
  std::string write_llmc(std::uint32_t magic, std::uint32_t version, std::uint32_t count,
                         const std::vector<T>& tokens) {
    std::vector<char> file(1024 + tokens.size() * sizeof(T));
    const std::uint32_t header[] = {magic, version, count};
    std::memcpy(file.data(), header, sizeof header);
    std::ranges::copy(std::as_bytes(std::span(tokens)),
                      std::as_writable_bytes(std::span(file)).begin() + 1024);
    return write("llmc", file.data(), file.size());
  }
  static TrainingData open(const DataOptions& options, std::uint64_t seed = 1) {
    auto data = TrainingData::open(options, seed);
    EXPECT_TRUE(data) << data.error().message;
    return std::move(data).value();
  }
  static std::string error_of(const DataOptions& options, Errc code = Errc::kArgument) {
    const auto data = TrainingData::open(options, 1);
    EXPECT_FALSE(data);
    if (data) return "";
    EXPECT_EQ(data.error().code, code);
    EXPECT_EQ(data.error().message.find('\n'), std::string::npos);
    return data.error().message;
  }

  std::filesystem::path directory_;
};

struct Batch {
  Batch(TrainingData& data, std::uint64_t step, std::uint64_t micro, std::uint64_t sequences,
        std::uint64_t seq)
      : tokens(sequences * seq), targets(sequences * seq) {
    const Status status = data.fill_batch(step, micro, sequences, seq, tokens, targets);
    EXPECT_TRUE(status) << status.error().message;
  }
  std::vector<std::uint32_t> tokens, targets;
};

std::vector<std::uint32_t> all_tokens(TokenReader& reader) {
  std::vector<std::uint32_t> tokens(reader.tokens());
  EXPECT_TRUE(reader.read(0, tokens));
  return tokens;
}

TEST_F(DataTest, ReadsAnyFileAsBytes) {
  const std::string path = write_bytes(1000);
  auto reader = open_tokens({.path = path});
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader.value()->vocab(), 256U);
  EXPECT_EQ(reader.value()->tokens(), 1000U);
  EXPECT_EQ(reader.value()->kind(), "bytes");
  const auto tokens = all_tokens(*reader.value());
  for (std::size_t i = 0; i < tokens.size(); ++i) ASSERT_EQ(tokens[i], (i * 7 + i / 251) % 256);
}

TEST_F(DataTest, ReadsBareTokens) {
  std::vector<std::uint16_t> small;
  std::vector<std::uint32_t> large;
  for (std::uint32_t i = 0; i < 300'000; ++i) {  // longer than the buffer
    small.push_back(static_cast<std::uint16_t>(i % 50257));
    large.push_back(i % 128000);
  }
  auto reader = open_tokens({.path = write_tokens(small), .vocab = 50257});
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader.value()->kind(), "16-bit tokens");
  EXPECT_TRUE(reader.value()->scanned());
  const auto read_small = all_tokens(*reader.value());
  EXPECT_TRUE(std::equal(read_small.begin(), read_small.end(), small.begin(), small.end()));

  reader = open_tokens({.path = write_tokens(large), .vocab = 128000});
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader.value()->kind(), "32-bit tokens");
  EXPECT_EQ(all_tokens(*reader.value()), large);

  // 32 bits for a small vocabulary must be said.
  for (auto& token : large) token %= 1000;
  reader = open_tokens({.path = write_tokens(large), .type = DataType::kU32, .vocab = 1000});
  ASSERT_TRUE(reader);
  EXPECT_EQ(all_tokens(*reader.value()), large);
}

TEST_F(DataTest, ReadsHeadersOfLlmC) {
  const std::vector<std::uint16_t> small = {1, 2, 50256};
  const std::vector<std::uint32_t> large = {1, 70000, 128255};
  auto reader = open_tokens({.path = write_llmc(20240520, 1, 3, small), .vocab = 50257});
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_EQ(all_tokens(*reader.value()), (std::vector<std::uint32_t>{1, 2, 50256}));
  reader = open_tokens({.path = write_llmc(20240801, 7, 3, large), .vocab = 128256});
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_EQ(all_tokens(*reader.value()), large);

  const std::vector<std::uint16_t> none;
  const std::string path = write_llmc(20240520, 1, 3, small);
  EXPECT_NE(error_of({.path = path}).find("--vocab"), std::string::npos);
  EXPECT_EQ(open_tokens({.path = path, .type = DataType::kBytes}).value()->tokens(), 1030U);
  EXPECT_NE(error_of({.path = path, .type = DataType::kU32, .vocab = 50257}).find("contradicts"),
            std::string::npos);
  EXPECT_NE(error_of({.path = write_llmc(20240520, 1, 0, none), .vocab = 50257}).find("no token"),
            std::string::npos)
      << "a header alone";
  EXPECT_NE(error_of({.path = write_llmc(20240520, 1, 4, small), .vocab = 50257}).find("announces"),
            std::string::npos);
  EXPECT_NE(error_of({.path = write_llmc(20240520, 2, 3, small), .vocab = 50257}).find("version 2"),
            std::string::npos);
}

TEST_F(DataTest, RefusesFilesItCannotUse) {
  EXPECT_NE(error_of({.path = ""}).find("--data is missing"), std::string::npos);
  EXPECT_NE(error_of({.path = (directory_ / "none").string()}).find("No such file"),
            std::string::npos);
  EXPECT_NE(error_of({.path = directory_.string()}).find("not a regular file"), std::string::npos);
  EXPECT_NE(error_of({.path = write("empty", "", 0)}).find("is empty"), std::string::npos);
  EXPECT_NE(error_of({.path = write("odd", "abc", 3), .vocab = 1000}).find("whole number"),
            std::string::npos);
  EXPECT_NE(error_of({.path = write_bytes(8), .type = DataType::kU16}).find("--vocab"),
            std::string::npos);
  EXPECT_NE(error_of({.path = write_bytes(8), .vocab = 1ULL << 40}).find("largest"),
            std::string::npos);
  if (::geteuid() != 0) {
    const std::string path = write_bytes(8);
    std::filesystem::permissions(path, std::filesystem::perms::none);
    EXPECT_NE(error_of({.path = path}).find("Permission denied"), std::string::npos);
  }
}

TEST_F(DataTest, NamesTheOffsetOfATokenOutsideTheVocabulary) {
  std::vector<std::uint16_t> tokens(200'000, 5);
  tokens[150'000] = 1000;
  const std::string path = write_tokens(tokens);
  const std::string message = error_of({.path = path, .vocab = 1000});
  EXPECT_NE(message.find("token 1000 at byte 300000"), std::string::npos) << message;
  EXPECT_NE(message.find("token number 150000"), std::string::npos) << message;

  // Beyond the limit of the scan it is found when it is read.
  auto reader = open_tokens({.path = path, .vocab = 1000, .scan_limit_bytes = 1000});
  ASSERT_TRUE(reader);
  EXPECT_FALSE(reader.value()->scanned());
  std::vector<std::uint32_t> piece(100);
  EXPECT_TRUE(reader.value()->read(149'900, piece));
  const Status status = reader.value()->read(149'901, piece);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Errc::kCorrupt);
  EXPECT_NE(status.error().message.find("byte 300000"), std::string::npos);

  const std::string bytes = write("text",
                                  "abc\xF0"
                                  "def",
                                  7);
  EXPECT_NE(error_of({.path = bytes, .type = DataType::kBytes, .vocab = 128}).find("token 240"),
            std::string::npos);
}

TEST_F(DataTest, SaysHowLongTheDataMustBe) {
  const TrainingData data = open({.path = write_bytes(1000)});
  EXPECT_EQ(data.held_out_tokens(), 50U);
  EXPECT_TRUE(data.check_sequence(49));
  const Status status = data.check_sequence(50);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("has 1000 tokens, but --seq 50 needs at least 1020"),
            std::string::npos)
      << status.error().message;
  EXPECT_NE(status.error().message.find("--seq 49 or less"), std::string::npos);
  EXPECT_TRUE(open({.path = write_bytes(1020)}).check_sequence(50));
  EXPECT_FALSE(data.check_sequence(0));
  EXPECT_FALSE(data.check_sequence(1ULL << 40));
  EXPECT_FALSE(open({.path = write_bytes(1)}).check_sequence(1));
}

// Method: tokens that are their own position, so a sequence shows where it lies.
TEST_F(DataTest, NeverTrainsOnHeldOutTokens) {
  std::vector<std::uint32_t> tokens(400);
  for (std::uint32_t i = 0; i < tokens.size(); ++i) tokens[i] = i;
  TrainingData data = open({.path = write_tokens(tokens), .type = DataType::kU32, .vocab = 400});
  ASSERT_EQ(data.train_tokens(), 380U);
  std::set<std::uint32_t> seen;
  for (std::uint64_t step = 0; step < 2000; ++step) {
    const Batch batch(data, step, 0, 4, 9);
    for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
      ASSERT_EQ(batch.targets[i], batch.tokens[i] + 1);
      ASSERT_LT(batch.targets[i], 380U);
      seen.insert(batch.tokens[i]);
      seen.insert(batch.targets[i]);
    }
  }
  EXPECT_EQ(seen.size(), 380U);  // and every training token comes up

  EXPECT_EQ(data.eval_sequences(9), 2U);
  std::vector<std::uint32_t> held(18), targets(18);
  ASSERT_TRUE(data.fill_eval(0, 2, 9, held, targets));
  for (std::uint32_t i = 0; i < 18; ++i) {
    EXPECT_EQ(held[i], 380 + i);
    EXPECT_EQ(targets[i], 381 + i);
  }
  EXPECT_FALSE(data.fill_eval(1, 2, 9, held, targets));
  EXPECT_FALSE(data.fill_eval(~0ULL, 2, 9, held, targets));
}

TEST_F(DataTest, BatchesAreAFunctionOfSeedStepAndIndex) {
  const std::string path = write_bytes(100'000);
  TrainingData data = open({.path = path}, 7);
  TrainingData again = open({.path = path}, 7);
  TrainingData other = open({.path = path}, 8);
  const Batch late(data, 123, 0, 8, 64);
  const Batch early(data, 5, 0, 8, 64);
  EXPECT_EQ(Batch(again, 5, 0, 8, 64).tokens, early.tokens);
  EXPECT_EQ(Batch(again, 123, 0, 8, 64).tokens, late.tokens);
  EXPECT_NE(early.tokens, late.tokens);
  EXPECT_NE(Batch(other, 5, 0, 8, 64).tokens, early.tokens);

  // Two micro-batches of four are the batch of eight.
  const Batch first(data, 5, 0, 4, 64), second(data, 5, 1, 4, 64);
  std::vector<std::uint32_t> joined = first.tokens;
  joined.insert(joined.end(), second.tokens.begin(), second.tokens.end());
  EXPECT_EQ(joined, early.tokens);
}

// Method: values computed once; a change would break --resume of every existing store.
TEST_F(DataTest, KeepsTheOrderOfEarlierVersions) {
  const TrainingData data = open({.path = write_bytes(100'000)}, 42);
  EXPECT_EQ(data.start_of(0, 0, 128), 2207U);
  EXPECT_EQ(data.start_of(1, 0, 128), 94625U);
  EXPECT_EQ(data.start_of(1, 3, 128), 38886U);
}

TEST_F(DataTest, ReportsAFileThatIsCutWhileItIsUsed) {
  const std::string path = write_bytes(100'000);
  TrainingData data = open({.path = path});
  std::filesystem::resize_file(path, 10);
  std::vector<std::uint32_t> tokens(640), targets(640);
  const Status status = data.fill_batch(0, 0, 10, 64, tokens, targets);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Errc::kIo);
  EXPECT_NE(status.error().message.find("had 100000 bytes when it was opened"), std::string::npos);
}

TEST_F(DataTest, RefusesArraysThatDoNotFit) {
  TrainingData data = open({.path = write_bytes(10'000)});
  std::vector<std::uint32_t> tokens(64), targets(63);
  EXPECT_FALSE(data.fill_batch(0, 0, 1, 64, tokens, targets));
  EXPECT_FALSE(data.fill_batch(0, 0, ~0ULL, 64, tokens, tokens));
}

TEST_F(DataTest, MakesRandomTokens) {
  TrainingData data = open({.path = "random:50257"});
  EXPECT_EQ(data.vocab(), 50257U);
  EXPECT_EQ(data.held_out_tokens(), TrainingData::kMaxHeldOut);
  const Batch batch(data, 0, 0, 2, 512);
  std::set<std::uint32_t> distinct(batch.tokens.begin(), batch.tokens.end());
  EXPECT_GT(distinct.size(), 900U);
  EXPECT_LT(*distinct.rbegin(), 50257U);
  EXPECT_GT(*distinct.rbegin(), 45000U);
  EXPECT_TRUE(
      std::equal(batch.tokens.begin() + 1, batch.tokens.begin() + 512, batch.targets.begin()));
  TrainingData again = open({.path = "random:50257"});
  EXPECT_EQ(Batch(again, 0, 0, 2, 512).tokens, batch.tokens);

  for (const char* bad : {"random:", "random:1", "random:-5", "random:12x", "random:99999999999"}) {
    EXPECT_NE(error_of({.path = bad}).find("random:50257"), std::string::npos) << bad;
  }
  EXPECT_NE(error_of({.path = "random:100", .vocab = 200}).find("contradicts"), std::string::npos);
}

TEST_F(DataTest, TellsFilesApart) {
  const auto print = [](const DataOptions& options) {
    return open_tokens(options).value()->fingerprint();
  };
  const std::string path = write_bytes(5000);
  const std::uint64_t before = print({.path = path});
  EXPECT_EQ(print({.path = path}), before);
  EXPECT_NE(print({.path = path, .type = DataType::kU16, .vocab = 65536}), before);
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(4999).put('#');
  EXPECT_NE(print({.path = path}), before);
  EXPECT_NE(print({.path = "random:100"}), print({.path = "random:101"}));
}

TEST_F(DataTest, SumsTheWholeFileOrPiecesOfALongOne) {
  const auto sum = [](const DataOptions& options) {
    return open_tokens(options).value()->content().value();
  };
  constexpr std::uint64_t kBytes = 2 * TokenReader::kSumPieces * TokenReader::kSumPieceBytes;
  const std::string path = write_bytes(1);
  std::filesystem::resize_file(path, kBytes);  // of holes
  const DataOptions whole{.path = path}, pieces{.path = path, .sum_limit_bytes = kBytes - 1};
  const auto differs_at = [&](const DataOptions& options, std::uint64_t offset) {
    const std::uint64_t before = sum(options);
    const auto put = [&](char byte) {
      std::fstream(path, std::ios::in | std::ios::out | std::ios::binary)
          .seekp(static_cast<std::streamoff>(offset))
          .put(byte);
    };
    put('#');
    const bool differs = sum(options) != before;
    put('\0');
    return differs;
  };
  // Every second 64 KiB are looked at, the first and the last among them.
  EXPECT_TRUE(differs_at(pieces, 1000));
  EXPECT_TRUE(differs_at(pieces, kBytes - 1));
  EXPECT_FALSE(differs_at(pieces, TokenReader::kSumPieceBytes + 1000));
  const std::uint64_t last = kBytes - TokenReader::kSumPieceBytes;
  const std::uint64_t middle = last * 511 / (TokenReader::kSumPieces - 1);
  EXPECT_TRUE(differs_at(pieces, middle));
  EXPECT_TRUE(differs_at(pieces, middle + TokenReader::kSumPieceBytes - 1));
  EXPECT_TRUE(differs_at(whole, TokenReader::kSumPieceBytes + 1000));
  EXPECT_TRUE(differs_at(whole, kBytes - 1));
  EXPECT_NE(sum({.path = "random:100"}), sum({.path = "random:101"}));
}

}  // namespace
}  // namespace penstock
