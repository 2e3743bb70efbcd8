#include "base/log.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace penstock {
namespace {

struct Line {
  LogLevel level;
  std::string file;
  int line;
  std::string message;
};

Logger recorder(LogLevel min_level, std::vector<Line>& lines) {
  return Logger(min_level,
                [&lines](LogLevel level, const char* file, int line, std::string_view message) {
                  lines.push_back(Line{level, file, line, std::string(message)});
                });
}

TEST(LoggerTest, DropsEverythingByDefault) {
  const Logger logger;
  EXPECT_FALSE(logger.enabled(LogLevel::kError));
  logger.log(LogLevel::kError, "nobody sees this");
  EXPECT_FALSE(Logger(LogLevel::kTrace, nullptr).enabled(LogLevel::kError));
}

TEST(LoggerTest, HandsOverLevelPlaceAndMessage) {
  std::vector<Line> lines;
  const Logger logger = recorder(LogLevel::kInfo, lines);
  const Logger copy = logger;
  copy.log(LogLevel::kWarning, "slow drive");
  const int line = __LINE__ - 1;
  logger.log(LogLevel::kDebug, "below the level");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].level, LogLevel::kWarning);
  EXPECT_NE(lines[0].file.find("log_test.cpp"), std::string::npos);
  EXPECT_EQ(lines[0].line, line);
  EXPECT_EQ(lines[0].message, "slow drive");
}

TEST(LoggerTest, MacroFormatsOnlyWhatIsEnabled) {
  std::vector<Line> lines;
  const Logger logger = recorder(LogLevel::kInfo, lines);
  int evaluated = 0;
  const auto value = [&evaluated] { return ++evaluated; };
  PENSTOCK_LOG(logger, LogLevel::kDebug, "value {}", value());
  EXPECT_EQ(evaluated, 0);
  PENSTOCK_LOG(logger, LogLevel::kInfo, "value {}", value());
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].message, "value 1");
  EXPECT_NE(lines[0].file.find("log_test.cpp"), std::string::npos);
}

TEST(LoggerTest, SerialisesThreads) {
  std::vector<Line> lines;  // without a lock of its own
  const Logger logger = recorder(LogLevel::kInfo, lines);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([logger] {
      for (int k = 0; k < 500; ++k) logger.log(LogLevel::kInfo, "x");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lines.size(), 2000U);
}

TEST(LoggerTest, SurvivesACallbackThatThrows) {
  int calls = 0;
  const Logger logger(LogLevel::kInfo, [&](LogLevel, const char*, int, std::string_view) {
    ++calls;
    throw std::runtime_error("callback");
  });
  logger.log(LogLevel::kInfo, "one");
  logger.log(LogLevel::kInfo, "two");
  EXPECT_EQ(calls, 2);
}

TEST(LoggerTest, LevelsHaveNames) {
  EXPECT_EQ(name_of(LogLevel::kTrace), "trace");
  EXPECT_EQ(name_of(LogLevel::kError), "error");
}

}  // namespace
}  // namespace penstock
