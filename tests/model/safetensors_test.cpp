// Method: each rule of the format is broken once in a file that is otherwise right.

#include "model/safetensors.hpp"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "temporary_directory.hpp"

namespace penstock::safetensors {
namespace {

/// A file of that header and so many bytes of data.
std::vector<std::byte> file_of(const std::string& json, std::uint64_t data_bytes) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < 8; ++i) {
    bytes.push_back(static_cast<std::byte>(json.size() >> (8 * i) & 0xFF));
  }
  for (const char c : json) bytes.push_back(static_cast<std::byte>(c));
  bytes.resize(bytes.size() + data_bytes);
  return bytes;
}

Result<Header> parse_file(const std::vector<std::byte>& bytes) {
  return parse(bytes, bytes.size(), "x.safetensors");
}

std::string error_of(const std::string& json, std::uint64_t data_bytes,
                     Errc code = Errc::kCorrupt) {
  const auto header = parse_file(file_of(json, data_bytes));
  if (header) return "";
  EXPECT_EQ(header.error().code, code) << header.error().message;
  EXPECT_EQ(header.error().message.find('\n'), std::string::npos);
  EXPECT_NE(header.error().message.find("x.safetensors: "), std::string::npos);
  return header.error().message;
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   std::uint64_t begin, std::uint64_t end) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

std::string object(const std::vector<std::string>& members) {
  std::string text = "{";
  for (const std::string& member : members) text += (text.size() == 1 ? "" : ",") + member;
  return text + "}";
}

TEST(SafetensorsTest, ReadsWhatTheFormatAllows) {
  const std::string json =
      object({tensor("b", "F32", "[2,3]", 4, 28), R"( "__metadata__":{"format":"pt"})",
              tensor("a", "BF16", "[2]", 0, 4), tensor("scalar", "I64", "[]", 28, 36),
              tensor("none", "U8", "[7,0]", 28, 28)}) +
      "   ";
  const auto header = parse_file(file_of(json, 36));
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header.value().metadata.at("format"), "pt");
  EXPECT_EQ(header.value().data_start, 8 + json.size());
  EXPECT_EQ(header.value().data_bytes, 36U);
  ASSERT_EQ(header.value().tensors.size(), 4U);
  const char* order[] = {"a", "b", "none", "scalar"};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(header.value().tensors[i].name, order[i]);
  EXPECT_EQ(header.value().tensors[1].shape, (std::vector<std::uint64_t>{2, 3}));
  EXPECT_TRUE(parse_file(file_of("{}", 0))) << "no tensor at all";
}

TEST(SafetensorsTest, RefusesLengthsThatDoNotFitTheFile) {
  for (const std::size_t bytes : {0U, 1U, 7U}) {
    const auto header = parse_file(std::vector<std::byte>(bytes));
    ASSERT_FALSE(header);
    EXPECT_NE(header.error().message.find("not even the length"), std::string::npos);
  }
  std::vector<std::byte> bytes = file_of("{}", 0);
  bytes[0] = std::byte{3};
  EXPECT_NE(parse_file(bytes).error().message.find("header would have 3 bytes"), std::string::npos);
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = std::byte{0xFF};  // plus 8 wraps to 7
  EXPECT_NE(parse_file(bytes).error().message.find("more than the 100000000"), std::string::npos);
  // The limit holds whatever the file's length is said to be.
  EXPECT_FALSE(parse(bytes, ~std::uint64_t{0}, "x"));
  EXPECT_NE(error_of("", 0).find("does not begin"), std::string::npos);
  // A caller that gives too little is told so.
  const std::vector<std::byte> whole = file_of("{}", 100);
  EXPECT_EQ(parse(std::span(whole).first(9), whole.size(), "x").error().code, Errc::kArgument);
}

TEST(SafetensorsTest, RefusesWhatIsNoHeader) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {" {}", "does not begin with '{'"},
      {"[]", "does not begin with '{'"},
      {"{", "not valid JSON"},
      {"{}x", "not valid JSON"},
      {std::string("{}\0", 3), "not valid JSON"},
      {"{\"a\":1}", "a number where none belongs"},
      {"{\"a\":null}", "null where none belongs"},
      {"{\"a\":\"b\"}", "a string where none belongs"},
      {"{\"a\":[]}", "an array where none belongs"},
      {"{\"a\":{}}", "lacks dtype"},
      {"{\"__metadata__\":{\"a\":1}}", "a number where none belongs"},
      {"{\"__metadata__\":{\"a\":{}}}", "an object where none belongs"},
      {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", "appears twice"},
      {"{\"__metadata__\":{},\"__metadata__\":{}}", "metadata appears twice"},
      {"{\"\xff\":{}}", "not valid JSON"},
  };
  for (const auto& [json, part] : cases) {
    EXPECT_NE(error_of(json, 0).find(part), std::string::npos) << json << ": " << error_of(json, 0);
  }
}

TEST(SafetensorsTest, RefusesTensorsThatAreIncompleteOrMore) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"a":{"dtype":"U8","shape":[1]}})", "lacks dtype, shape or data_offsets"},
      {R"({"a":{"shape":[1],"data_offsets":[0,1]}})", "lacks"},
      {R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", "lacks"},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       "the key dtype twice"},
      {R"({"a":{"dtype":"U8","shape":[1],"shape":[],"data_offsets":[0,1]}})",
       "the key shape twice"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"data_offsets":[0,1]}})",
       "the key data_offsets twice"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", "unknown key"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", "not two data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", "a number where none belongs"},
      {R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})", "an array where none"},
      {R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", "a negative number"},
      {R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", "not whole"},
      {R"({"a":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,1]}})",
       "beyond 64 bits"},
      {R"({"a":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}})", "a string where none"},
      {R"({"a":{"dtype":1,"shape":[1],"data_offsets":[0,1]}})", "a number where none"},
      {R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})",
       "more than 8 dimensions"},
      {"{\"" + std::string(513, 'n') + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       "longer than 512 bytes"},
  };
  for (const auto& [json, part] : cases) {
    EXPECT_NE(error_of(json, 1).find(part), std::string::npos) << json << ": " << error_of(json, 1);
  }
}

TEST(SafetensorsTest, RefusesTypesItDoesNotKnow) {
  for (const char* dtype : {"", "F4", "F6_E2M3", "f32", "BF16 ", "F3", "F320"}) {
    const std::string json = object({tensor("a", dtype, "[1]", 0, 4)});
    EXPECT_NE(error_of(json, 4, Errc::kUnsupported).find("has the type"), std::string::npos);
  }
}

TEST(SafetensorsTest, RefusesRangesThatDoNotTileTheData) {
  const std::string a = tensor("a", "U8", "[4]", 0, 4);
  const auto with = [&](const std::string& more) { return object({a, more}); };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {object({a}), "its tensors end at 4, its data at 8"},
      {"{}", "its tensors end at 0, its data at 8"},
      {with(tensor("b", "U8", "[4]", 3, 7)), "overlaps or has a hole"},
      {with(tensor("b", "U8", "[3]", 5, 8)), "overlaps or has a hole"},
      {with(tensor("b", "U8", "[4]", 0, 4)), "overlaps or has a hole"},
      {with(tensor("b", "U8", "[5]", 4, 9)), "ends at 9, behind the 8 bytes"},
      {with(tensor("b", "U8", "[4]", 8, 4)), "but 4 bytes by type and shape"},
      {with(tensor("b", "U16", "[4]", 4, 8)), "but 8 bytes by type and shape"},
      {with(tensor("b", "U8", "[]", 4, 8)), "but 1 bytes"},
      {with(tensor("b", "U8", "[0]", 4, 8)), "but 0 bytes"},
      {with(tensor("a", "U8", "[4]", 4, 8)), "\"a\" appears twice"},
      // Products that wrap to the right number, or would be saved by a zero.
      {with(tensor("b", "U8", "[4294967296,4294967296,1]", 4, 4)), "overflows"},
      {with(tensor("b", "F32", "[4611686018427387905]", 4, 8)), "overflows"},
      {with(tensor("b", "U8", "[18446744073709551615,2,0]", 4, 4)), "overflows"},
      {with(tensor("b", "U8", "[18446744073709551615]", 4, 3)),
       "4 to 3, but 18446744073709551615 bytes"},
  };
  for (const auto& [json, part] : cases) {
    const std::string error = error_of(json, 8);
    EXPECT_NE(error.find(part), std::string::npos) << json << ": " << error;
  }
}

TEST(SafetensorsTest, BoundsMetadata) {
  std::string json = "{\"__metadata__\":{";
  for (std::size_t i = 0; i <= kMaxMetadata; ++i) {
    json += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":\"\"";
  }
  EXPECT_NE(error_of(json + "}}", 0).find("lines of metadata"), std::string::npos);
}

TEST(SafetensorsTest, WritesWhatItReads) {
  std::vector<Tensor> tensors = {{"w", "BF16", {3, 5}, 0, 0},
                                 {"a \"quoted\" \xC3\xA4", "F32", {}, 0, 0},
                                 {"empty", "I64", {0, 4}, 0, 0}};
  const std::map<std::string, std::string> metadata = {{"format", "pt"}, {"step", "7"}};
  const auto text = encode_header(metadata, tensors);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(text.value().size() % 8, 0U);
  EXPECT_EQ(tensors[0].end, 30U);
  EXPECT_EQ(tensors[1].begin, 30U);
  EXPECT_EQ(tensors[2].end, 34U);
  std::vector<std::byte> bytes(text.value().size() + 34);
  for (std::size_t i = 0; i < text.value().size(); ++i) {
    bytes[i] = static_cast<std::byte>(text.value()[i]);
  }
  const auto header = parse_file(bytes);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header.value().data_start, text.value().size());
  EXPECT_EQ(header.value().metadata, metadata);
  ASSERT_EQ(header.value().tensors.size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(header.value().tensors[i].name, tensors[i].name);
    EXPECT_EQ(header.value().tensors[i].dtype, tensors[i].dtype);
    EXPECT_EQ(header.value().tensors[i].shape, tensors[i].shape);
    EXPECT_EQ(header.value().tensors[i].begin, tensors[i].begin);
  }
}

TEST(SafetensorsTest, RefusesToWriteWhatItWouldNotRead) {
  const std::vector<std::vector<Tensor>> cases = {
      {{"a", "F32", {1}, 0, 0}, {"b", "F32", {1}, 0, 0}, {"a", "U8", {1}, 0, 0}},
      {{"a", "F31", {1}, 0, 0}},
      {{"\xff", "F32", {1}, 0, 0}},
      {{std::string(513, 'a'), "F32", {1}, 0, 0}},
      {{"__metadata__", "F32", {1}, 0, 0}},
      {{"a", "F32", {1, 1, 1, 1, 1, 1, 1, 1, 1}, 0, 0}},
      {{"a", "F32", {~std::uint64_t{0}}, 0, 0}},
      {{"a", "U8", {~std::uint64_t{0}}, 0, 0}, {"b", "U8", {1}, 0, 0}}};
  for (std::vector<Tensor> tensors : cases) {
    const auto text = encode_header({}, tensors);
    ASSERT_FALSE(text) << tensors[0].name;
    EXPECT_EQ(text.error().code, Errc::kArgument);
  }
  std::vector<Tensor> none;
  EXPECT_FALSE(encode_header({{"\xff", ""}}, none));
}

TEST(SafetensorsTest, ReadsHeadersOfRegularFilesOnly) {
  const testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/x";
  const std::vector<std::byte> bytes = file_of(object({tensor("a", "U8", "[4]", 0, 4)}), 4);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  const auto header = read_header(path);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header.value().tensors[0].name, "a");
  for (std::uint64_t length = 0; length < bytes.size(); ++length) {
    std::filesystem::resize_file(path, length);
    EXPECT_FALSE(read_header(path)) << length << " bytes";
  }
  EXPECT_EQ(read_header(path + "y").error().code, Errc::kIo);
  EXPECT_EQ(read_header(directory.path()).error().code, Errc::kArgument);
  const std::string pipe = directory.path() + "/pipe";
  ::mkfifo(pipe.c_str(), 0600);
  EXPECT_FALSE(read_header(pipe));  // and does not wait for a writer
}

}  // namespace
}  // namespace penstock::safetensors
