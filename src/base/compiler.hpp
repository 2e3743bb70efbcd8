#pragma once

/// The compiler that built this, for reports.

namespace penstock {

inline constexpr const char* kCompiler =
#ifdef __clang__
    "clang " __clang_version__;
#else
    "gcc " __VERSION__;
#endif

}  // namespace penstock
