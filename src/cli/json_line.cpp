#include "cli/json_line.hpp"

#include <nlohmann/json.hpp>

namespace penstock {

std::string json_line(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace penstock
