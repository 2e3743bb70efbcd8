#include "model/strict_json.hpp"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <nlohmann/json.hpp>

namespace penstock {
namespace {

std::string strict_error_of(std::string_view text, JsonLimits limits = {}) {
  nlohmann::json value;
  const Status status = parse_strict_json(text, "x.json", limits, value);
  if (status) return "";
  EXPECT_EQ(status.error().code, Errc::kArgument);
  return status.error().message;
}

TEST(StrictJsonTest, ParsesWhatIsRight) {
  nlohmann::json value;
  ASSERT_TRUE(parse_strict_json(R"({"a": [1, {"a": 2}], "b": {"a": 3}})", "x", {}, value));
  EXPECT_EQ(value["a"][1]["a"], 2);
}

TEST(StrictJsonTest, RefusesDuplicateKeysInOneObjectOnly) {
  EXPECT_NE(strict_error_of(R"({"a": 1, "b": 2, "a": 3})").find("\"a\" appears twice"),
            std::string::npos);
  EXPECT_NE(strict_error_of(R"([{"x": {"a": 1, "a": 1}}])").find("appears twice"),
            std::string::npos);
  EXPECT_EQ(strict_error_of(R"([{"a": 1}, {"a": 1}])"), "");
}

TEST(StrictJsonTest, BoundsDepthAndSize) {
  const std::string deep32 = std::string(32, '[') + std::string(32, ']');
  const std::string deep33 = std::string(33, '[') + std::string(33, ']');
  EXPECT_EQ(strict_error_of(deep32), "");
  EXPECT_NE(strict_error_of(deep33).find("deeper than 32"), std::string::npos);
  EXPECT_NE(strict_error_of(std::string(1 << 20, '[')).find("deeper than 32"), std::string::npos);
  std::string big((1 << 20) + 2, 'a');
  big.front() = big.back() = '"';
  EXPECT_NE(strict_error_of(big).find("larger than 1 MiB"), std::string::npos);
}

TEST(StrictJsonTest, SaysWhereTheMistakeIs) {
  EXPECT_NE(strict_error_of("{\n  \"a\": 1,\n  \"b\" 2\n}").find("line 3"), std::string::npos);
  for (const char* bad : {"", "{", "nul", "{\"a\": }", "[1,]", "\"\xff\"", "1 2", "{}x"}) {
    EXPECT_NE(strict_error_of(bad).find("x.json: it is not valid JSON"), std::string::npos) << bad;
  }
}

TEST(StrictJsonTest, RefusesZeroBytes) {
  using std::string_view_literals::operator""sv;
  for (const std::string_view bad : {"{}\0"sv, "{}\0{"sv, "[1,\0 2]"sv, "\0"sv}) {
    EXPECT_NE(strict_error_of(bad).find("x.json: it is not valid JSON at line 1"),
              std::string::npos);
  }
}

TEST(StrictJsonTest, KeepsExcerptsShortAndPrintable) {
  EXPECT_EQ(json_excerpt(nlohmann::json("a\nb")), "\"a\\nb\"");
  EXPECT_EQ(json_excerpt(nlohmann::json(std::string(1000, 'a'))).size(), 63U);
}

TEST(StrictJsonTest, ReadsSmallRegularFilesOnly) {
  const auto directory = std::filesystem::temp_directory_path() / "penstock_strict_json_test";
  std::filesystem::create_directories(directory);
  const std::string path = (directory / "f").string();
  std::ofstream(path) << "12345";
  ASSERT_TRUE(read_small_file(path, 5));
  EXPECT_EQ(read_small_file(path, 5).value(), "12345");
  EXPECT_FALSE(read_small_file(path, 4));
  EXPECT_NE(read_small_file(directory.string(), 5).error().message.find("not a regular file"),
            std::string::npos);
  EXPECT_NE(read_small_file(path + "x", 5).error().message.find("No such file"), std::string::npos);
  const std::string pipe = (directory / "pipe").string();
  ::mkfifo(pipe.c_str(), 0600);
  EXPECT_FALSE(read_small_file(pipe, 5));  // and does not wait for a writer
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace penstock
