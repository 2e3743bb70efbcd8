// Method: a pseudo terminal, or a pipe, takes the console's messages; time is given.

#include "cli/console.hpp"

#include <fcntl.h>
#include <pty.h>
#include <unistd.h>

#include <string>

#include <gtest/gtest.h>

#include "cli/train_view.hpp"

namespace penstock {
namespace {

std::string read_all(int fd) {
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  std::string text;
  char piece[4096];
  ssize_t count = 0;
  while ((count = ::read(fd, piece, sizeof piece)) > 0) {
    text.append(piece, static_cast<std::size_t>(count));
  }
  return text;
}

struct Pipe {
  Pipe() { EXPECT_EQ(::pipe(ends), 0); }
  ~Pipe() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  int ends[2] = {-1, -1};
};

TEST(ConsoleTest, WritesPlainLinesWhereNobodyWatches) {
  Pipe out, messages;
  {
    Console console({.output_fd = out.ends[1], .message_fd = messages.ends[1]});
    EXPECT_FALSE(console.is_live());
    console.live("step 1");
    console.live("step 2");
    console.note("note");
    console.warn("warning");
    console.error("error");
    console.data("data");
  }
  EXPECT_EQ(read_all(messages.ends[0]),
            "step 1\nstep 2\nnote\nwarning: warning\npenstock: error\n");
  EXPECT_EQ(read_all(out.ends[0]), "data\n");
}

TEST(ConsoleTest, QuietLeavesErrorsAndData) {
  Pipe out, messages;
  Console console({.quiet = true, .output_fd = out.ends[1], .message_fd = messages.ends[1]});
  console.live("step 1");
  console.note("note");
  console.warn("warning");
  console.error("error");
  console.data("data");
  EXPECT_EQ(read_all(messages.ends[0]), "penstock: error\n");
  EXPECT_EQ(read_all(out.ends[0]), "data\n");
}

TEST(ConsoleTest, ColorsOnlyWhenAsked) {
  Pipe messages;
  Console({.color = ColorChoice::kAlways, .message_fd = messages.ends[1]}).error("x");
  EXPECT_NE(read_all(messages.ends[0]).find("\x1b[1;31mpenstock: \x1b[0mx"), std::string::npos);
}

TEST(ConsoleTest, ReplacesTheLiveLineFiveTimesASecondAtMost) {
  int master = -1, terminal = -1;
  winsize size{24, 20, 0, 0};
  if (::openpty(&master, &terminal, nullptr, nullptr, &size) != 0) {
    GTEST_SKIP() << "no pseudo terminal here; mount devpts at /dev/pts to run this test";
  }
  std::uint64_t now = 1'000'000'000;
  {
    Console console(
        {.color = ColorChoice::kNever, .message_fd = terminal, .now_ns = [&now] { return now; }});
    EXPECT_TRUE(console.is_live());
    console.live("one");
    now += Console::kLiveIntervalNs - 1;
    console.live("two");  // too early
    now += 1;
    console.live("a line longer than twenty columns");
    console.live("last");
    console.note("note");
    console.finish_live();
  }
  const std::string text = read_all(master);
  ::close(master);
  ::close(terminal);
  EXPECT_EQ(text, "\r\x1b[Kone\r\x1b[Ka line longer than \r\x1b[Knote\r\n\r\x1b[Klast\r\n");
}

TEST(ConsoleTest, RemembersAFailedWriteOfData) {
  const int full = ::open("/dev/full", O_WRONLY);
  ASSERT_GE(full, 0);
  Console console({.output_fd = full});
  EXPECT_TRUE(console.output_status());
  console.data("x");
  const Status status = console.output_status();
  ::close(full);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("No space left"), std::string::npos);
}

TEST(TrainViewTest, ShowsAStepInOneLine) {
  StepLine line;
  line.step = 120;
  line.steps = 1000;
  line.loss = 3.21;
  line.tokens_per_second = 41200;
  line.seconds_left = 3725;
  line.rates = {{"nvme read", 1.4e9}};
  line.percent_of_bound = 93;
  EXPECT_EQ(step_text(line),
            "step 120/1000  loss 3.2100  41200 tok/s  nvme read 1.4 GB/s  93 % of bound  "
            "eta 1:02:05");
  line.applied = false;
  EXPECT_NE(step_text(line).find("skipped"), std::string::npos);
}

}  // namespace
}  // namespace penstock
