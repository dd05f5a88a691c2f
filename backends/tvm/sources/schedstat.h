/* How long a thread has waited for a processor. */

#if defined(__linux__) && !defined(OPTC_POSIX)

/* Only the C library's syscall() is needed. */
#include <fcntl.h>
#include <sys/syscall.h>

extern long syscall(long number, ...);

/* Nanoseconds that a thread of this process was ready to run while others had the processor (the
second number of its schedstat); -1 if the system does not say. */
static long long wait_of(int id) {
  char path[64] = "/proc/self/task/", text[96];
  char *end = path + sizeof("/proc/self/task/") - 1;
  int digits = 1;
  for (int rest = id; rest >= 10; rest /= 10) digits++;
  for (int i = digits - 1; i >= 0; i--, id /= 10) end[i] = (char)('0' + id % 10);
  __builtin_memcpy(end + digits, "/schedstat", sizeof("/schedstat"));
  long file = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return -1;
  long length = syscall(SYS_read, file, text, sizeof(text) - 1);
  syscall(SYS_close, file);
  text[length < 0 ? 0 : length] = 0;
  const char *place = text;
  while (*place && *place != ' ') place++;
  long long wait = 0;
  while (*place && *++place >= '0' && *place <= '9') wait = 10 * wait + (*place - '0');
  return wait;
}

#else

static long long wait_of(int id) {
  (void)id;
  return -1;
}

#endif
