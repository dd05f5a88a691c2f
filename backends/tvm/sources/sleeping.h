/* How a thread sleeps on a word of memory and is woken, and the system's number of it. */

#if defined(__linux__) && !defined(OPTC_POSIX)

/* Only the C library's syscall() is needed. */
#include <sys/syscall.h>

#define FUTEX_WAIT_PRIVATE 128
#define FUTEX_WAKE_PRIVATE 129

extern long syscall(long number, ...);

/* Sleep until woken, if `word` still is `value`; who sleeps may also wake for nothing. */
static void sleep_on(unsigned *word, unsigned value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, 0, 0, 0);
}

/* Wake all that sleep on `word`, which has changed. */
static void wake(unsigned *word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 0x7fffffff, 0, 0, 0);
}

static int thread_number(void) { return (int)syscall(SYS_gettid); }

#else

/* macOS has such calls from release 14.4 on. All that sleep share one condition: a word changes
before `wake` takes the lock, so that nobody goes to sleep on the old value and is forgotten. */
#include <pthread.h>

static pthread_mutex_t sleeping = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t woken = PTHREAD_COND_INITIALIZER;

static void sleep_on(unsigned *word, unsigned value) {
  pthread_mutex_lock(&sleeping);
  if (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value) pthread_cond_wait(&woken, &sleeping);
  pthread_mutex_unlock(&sleeping);
}

static void wake(unsigned *word) {
  (void)word;
  pthread_mutex_lock(&sleeping);
  pthread_cond_broadcast(&woken);
  pthread_mutex_unlock(&sleeping);
}

/* `wait_of` does not ask for it. */
static int thread_number(void) { return 1; }

#endif
