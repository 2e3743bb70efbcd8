// Runs a program as where io_uring is refused: as containers do (EPERM) or old kernels (ENOSYS).
//
// usage: without_uring EPERM|ENOSYS PROGRAM [ARGUMENT...]

#include <seccomp.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <initializer_list>

int main(int count, char** words) {
  const bool known =
      count >= 3 && (std::strcmp(words[1], "EPERM") == 0 || std::strcmp(words[1], "ENOSYS") == 0);
  if (!known) {
    std::fprintf(stderr, "usage: without_uring EPERM|ENOSYS PROGRAM [ARGUMENT...]\n");
    return 2;
  }
  const int error = std::strcmp(words[1], "EPERM") == 0 ? EPERM : ENOSYS;
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
  bool good = filter != nullptr;
  for (const int call :
       {SCMP_SYS(io_uring_setup), SCMP_SYS(io_uring_enter), SCMP_SYS(io_uring_register)}) {
    good = good &&
           seccomp_rule_add(filter, SCMP_ACT_ERRNO(static_cast<unsigned>(error)), call, 0) == 0;
  }
  if (!good || seccomp_load(filter) != 0) {
    std::fprintf(stderr, "without_uring: the kernel takes no filter\n");
    return 77;
  }
  seccomp_release(filter);
  execvp(words[2], words + 2);
  std::fprintf(stderr, "without_uring: %s: %s\n", words[2], std::strerror(errno));
  return 1;
}
