#pragma once

/// What the C interface reports as JSON; the first member of each object names its schema.

#include <string>

#include "capi/session.hpp"

namespace penstock::capi {

[[nodiscard]] std::string build_info_json();
[[nodiscard]] std::string plan_report(const Session& session, const Plan& plan);
[[nodiscard]] std::string checkpoints_report(const Engine& engine);
[[nodiscard]] std::string copy_report(const Engine& engine);
[[nodiscard]] std::string stats_report(const Session& session, const Engine& engine);

}  // namespace penstock::capi
