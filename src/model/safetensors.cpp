#include "model/safetensors.hpp"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/strict_json.hpp"

namespace penstock::safetensors {
namespace {

using nlohmann::json;

struct ElementType {
  std::string_view name;
  std::uint64_t bytes;
};
/// Types of whole bytes. F4 and F6 pack elements into bits and are not read.
constexpr auto kTypes = std::to_array<ElementType>({{"BOOL", 1},
                                                    {"U8", 1},
                                                    {"I8", 1},
                                                    {"F8_E5M2", 1},
                                                    {"F8_E4M3", 1},
                                                    {"F8_E8M0", 1},
                                                    {"I16", 2},
                                                    {"U16", 2},
                                                    {"F16", 2},
                                                    {"BF16", 2},
                                                    {"I32", 4},
                                                    {"U32", 4},
                                                    {"F32", 4},
                                                    {"C64", 8},
                                                    {"F64", 8},
                                                    {"I64", 8},
                                                    {"U64", 8}});
constexpr std::size_t kMaxTypeBytes = 16;
constexpr std::string_view kMetadataKey = "__metadata__";

std::string shown(std::string_view name) {
  return json_excerpt(json(std::string(name.substr(0, kMaxNameBytes))));
}

/// Builds the header while the text is parsed, so that no tree of it is ever in memory.
class HeaderBuilder : public json::json_sax_t {
 public:
  explicit HeaderBuilder(Header& into) : into_(into) {}

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("true or false"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return unexpected("a number that is not whole or beyond 64 bits");
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShape) {
      if (tensor().shape.size() == kMaxDimensions) {
        return refuse(fmt::format("tensor {} has more than {} dimensions", shown(tensor().name),
                                  kMaxDimensions));
      }
      tensor().shape.push_back(value);
      return true;
    }
    if (place_ == Place::kOffsets && offsets_ < 2) {
      (offsets_ == 0 ? tensor().begin : tensor().end) = value;
      ++offsets_;
      return true;
    }
    return unexpected("a number");
  }

  bool string(string_t& text) override {
    if (place_ == Place::kMetadata) {
      if (into_.metadata.size() == kMaxMetadata) {
        return refuse(fmt::format("it has more than {} lines of metadata", kMaxMetadata));
      }
      if (into_.metadata.emplace(key_, text).second) return true;
      return refuse(fmt::format("the key {} appears twice in its metadata", shown(key_)));
    }
    if (place_ == Place::kTensor && key_ == "dtype") {
      if (element_bytes(text) != 0) {
        tensor().dtype = text;
        return true;
      }
      code_ = Errc::kUnsupported;
      return refuse(
          fmt::format("tensor {} has the type {}, which is not one of whole bytes that "
                      "this version knows",
                      shown(tensor().name), shown(text)));
    }
    return unexpected("a string");
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kRoot;
      return true;
    }
    if (place_ != Place::kRoot) return unexpected("an object");
    place_ = key_ == kMetadataKey ? Place::kMetadata : Place::kTensor;
    return place_ == Place::kMetadata || begin_tensor();
  }

  bool key(string_t& name) override {
    if (name.size() > kMaxNameBytes) {
      return refuse(fmt::format("the name {} is longer than {} bytes", shown(name), kMaxNameBytes));
    }
    key_ = name;
    if (place_ == Place::kRoot && name == kMetadataKey) {
      if (std::exchange(metadata_seen_, true)) return refuse("its metadata appears twice");
    }
    if (place_ != Place::kTensor) return true;
    constexpr std::array kFields = {"dtype", "shape", "data_offsets"};
    for (std::uint32_t i = 0; i < kFields.size(); ++i) {
      if (name != kFields[i]) continue;
      if ((fields_ >> i & 1U) == 0) {
        fields_ |= 1U << i;
        return true;
      }
      return refuse(fmt::format("tensor {} has the key {} twice", shown(tensor().name), name));
    }
    return refuse(
        fmt::format("tensor {} has an unknown key {}", shown(tensor().name), shown(name)));
  }

  bool end_object() override {
    const Place left = std::exchange(place_, place_ == Place::kRoot ? Place::kEnd : Place::kRoot);
    if (left != Place::kTensor || fields_ == 7) return true;
    return refuse(
        fmt::format("tensor {} lacks dtype, shape or data_offsets", shown(tensor().name)));
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::kTensor || key_ == "dtype") return unexpected("an array");
    place_ = key_ == "shape" ? Place::kShape : Place::kOffsets;
    return true;
  }

  bool end_array() override {
    const Place left = std::exchange(place_, Place::kTensor);
    if (left == Place::kShape || offsets_ == 2) return true;
    return refuse(fmt::format("tensor {} has not two data_offsets", shown(tensor().name)));
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return refuse(fmt::format("its header is not valid JSON at byte {}", 7 + position));
  }

  [[nodiscard]] const std::string& problem() const { return problem_; }
  [[nodiscard]] Errc code() const { return code_; }

 private:
  enum class Place : std::uint8_t {
    kStart,
    kRoot,
    kMetadata,
    kTensor,
    kShape,
    kOffsets,
    kEnd,
  };

  Tensor& tensor() { return into_.tensors.back(); }

  bool begin_tensor() {
    if (into_.tensors.size() == kMaxTensors) {
      return refuse(fmt::format("it has more than {} tensors", kMaxTensors));
    }
    into_.tensors.emplace_back().name = key_;
    fields_ = 0;
    offsets_ = 0;
    return true;
  }

  bool refuse(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }

  bool unexpected(std::string_view what) {
    if (place_ == Place::kStart)
      return refuse(fmt::format("its header is {}, not an object", what));
    return refuse(
        fmt::format("its header has {} where none belongs, at the key {}", what, shown(key_)));
  }

  Header& into_;
  Place place_ = Place::kStart;
  std::string key_;
  bool metadata_seen_ = false;
  std::uint32_t fields_ = 0;   // bits: which of the three a tensor has
  std::uint32_t offsets_ = 0;  // numbers of data_offsets so far
  std::string problem_;
  Errc code_ = Errc::kCorrupt;
};

/// Bytes of a tensor; false when the product does not fit 64 bits.
bool tensor_bytes(const Tensor& tensor, std::uint64_t& bytes) {
  bytes = element_bytes(tensor.dtype);
  for (const std::uint64_t length : tensor.shape) {
    if (__builtin_mul_overflow(bytes, length, &bytes)) return false;
  }
  return true;
}

/// The first tensor that is wrong, in words; empty when all are right. Sorts them by their data.
std::string check_tensors(Header& header) {
  const auto by_name = [](const Tensor& a, const Tensor& b) { return a.name < b.name; };
  std::vector<Tensor>& tensors = header.tensors;
  std::sort(tensors.begin(), tensors.end(), by_name);
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i].name == tensors[i - 1].name) {
      return fmt::format("the tensor {} appears twice", shown(tensors[i].name));
    }
  }
  std::sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t reached = 0;
  for (const Tensor& tensor : tensors) {
    std::uint64_t bytes = 0;
    if (!tensor_bytes(tensor, bytes)) {
      return fmt::format("the shape of tensor {} overflows", shown(tensor.name));
    }
    if (tensor.end < tensor.begin || tensor.end - tensor.begin != bytes) {
      return fmt::format("tensor {} has data_offsets {} to {}, but {} bytes by type and shape",
                         shown(tensor.name), tensor.begin, tensor.end, bytes);
    }
    if (tensor.end > header.data_bytes) {
      return fmt::format("tensor {} ends at {}, behind the {} bytes of data", shown(tensor.name),
                         tensor.end, header.data_bytes);
    }
    if (tensor.begin != reached) {
      return fmt::format(
          "tensor {} begins at {}, where {} was expected: data overlaps or has a hole",
          shown(tensor.name), tensor.begin, reached);
    }
    reached = tensor.end;
  }
  if (reached == header.data_bytes) return {};
  return fmt::format("its tensors end at {}, its data at {}", reached, header.data_bytes);
}

Error corrupt(std::string_view where, std::string_view what, Errc code = Errc::kCorrupt) {
  return make_error(code,
                    fmt::format("{}: {}; it is damaged, or no safetensors file", where, what));
}

/// Length of the header's JSON, checked against limits and the file.
Result<std::uint64_t> json_length(std::span<const std::byte> head, std::uint64_t file_bytes,
                                  std::string_view where) {
  if (file_bytes < 8 || head.size() < 8) {
    return corrupt(where,
                   fmt::format("it has {} bytes, not even the length of a header", file_bytes));
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    length |= std::to_integer<std::uint64_t>(head[i]) << (8 * i);
  }
  if (length > kMaxHeaderBytes) {
    return corrupt(where, fmt::format("its header would have {} bytes, more than the {} that are "
                                      "read",
                                      length, kMaxHeaderBytes));
  }
  if (length > file_bytes - 8) {
    return corrupt(where, fmt::format("its header would have {} bytes, and the file has {}", length,
                                      file_bytes));
  }
  return length;
}

std::size_t count_of(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

}  // namespace

std::uint64_t element_bytes(std::string_view dtype) {
  if (dtype.size() > kMaxTypeBytes) return 0;
  for (const ElementType& type : kTypes) {
    if (type.name == dtype) return type.bytes;
  }
  return 0;
}

Result<Header> parse(std::span<const std::byte> head, std::uint64_t file_bytes,
                     std::string_view where) {
  PENSTOCK_TAKE(length, json_length(head, file_bytes, where));
  if (head.size() - 8 < length) {
    return make_error(Errc::kArgument, fmt::format("{}: {} bytes of it were given to read a header "
                                                   "of {}; give all of them",
                                                   where, head.size(), length));
  }
  const std::string_view text(reinterpret_cast<const char*>(head.data()) + 8, length);
  if (text.empty() || text.front() != '{') {
    return corrupt(where, "its header does not begin with '{'");
  }
  // The library takes a zero byte for the end of the text.
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
    return corrupt(where, fmt::format("its header is not valid JSON at byte {}", 8 + zero));
  }
  Header header;
  header.data_start = 8 + length;
  header.data_bytes = file_bytes - header.data_start;
  // Growing would take the memory twice; a wrong guess only grows.
  header.tensors.reserve(std::min(count_of(text, "\"data_offsets\""), kMaxTensors));
  HeaderBuilder builder(header);
  if (!json::sax_parse(text.begin(), text.end(), &builder)) {
    return corrupt(where, builder.problem(), builder.code());
  }
  const std::string problem = check_tensors(header);
  if (!problem.empty()) return corrupt(where, problem);
  return header;
}

Result<std::string> encode_header(const std::map<std::string, std::string>& metadata,
                                  std::vector<Tensor>& tensors) {
  const auto refuse = [](const std::string& what) {
    return make_error(Errc::kArgument, fmt::format("safetensors header: {}", what));
  };
  if (tensors.size() > kMaxTensors) return refuse(fmt::format("{} tensors", tensors.size()));
  std::string text = "{";
  const auto append = [&text](const json& key, const json& value) {
    text += fmt::format("{}{}:{}", text.size() == 1 ? "" : ",", key.dump(), value.dump());
  };
  std::uint64_t at = 0;
  try {
    if (!metadata.empty()) append(kMetadataKey, metadata);
    for (Tensor& tensor : tensors) {
      std::uint64_t bytes = 0;
      if (element_bytes(tensor.dtype) == 0 || !tensor_bytes(tensor, bytes) ||
          tensor.shape.size() > kMaxDimensions || tensor.name.size() > kMaxNameBytes ||
          tensor.name == kMetadataKey) {
        return refuse(fmt::format("the tensor {} of type {} is beyond what the format takes",
                                  shown(tensor.name), shown(tensor.dtype)));
      }
      tensor.begin = at;
      if (__builtin_add_overflow(at, bytes, &at)) return refuse("the data overflows");
      tensor.end = at;
      append(tensor.name, {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {tensor.begin, tensor.end}}});
    }
  } catch (const json::exception&) {
    return refuse("a name or a line of metadata is not UTF-8");
  }
  std::vector<std::string_view> names;
  for (const Tensor& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) return refuse(fmt::format("{} is there twice", shown(*twice)));
  text += "}";
  text.append((8 - text.size() % 8) % 8, ' ');  // data that is aligned as a pointer is
  if (text.size() > kMaxHeaderBytes) return refuse(fmt::format("{} bytes", text.size()));
  std::string head(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) {
    head[i] = static_cast<char>(text.size() >> (8 * i) & 0xFF);
  }
  return head + text;
}

}  // namespace penstock::safetensors
