/* Threads of an engine's parallel loops, in place of TVM's pool (optc/backends/tvm/thread_pool.py).

TVM's threads wait by giving up the processor again and again (sched_yield). Beside other programs
that puts them behind those for milliseconds, many times a step. Here
- tasks are claimed: the launching thread does what no other has begun;
- who waits spins without yielding, then sleeps;
- where workers hold up the launching thread, or get no processor, it runs loops alone for a while.

The memory of a pool is its owner's, zeroed, of optc_pool_bytes() bytes. One thread launches, any
number work. Only the C library's syscall() is needed. */

#include <stddef.h>
#include <sys/syscall.h>

extern long syscall(long number, ...);

#define FUTEX_WAIT_PRIVATE 128
#define FUTEX_WAKE_PRIVATE 129
#define LINE _Alignas(64)
/* Cycles of the time stamp counter, some 3 per nanosecond. A worker spins over what lies between
two steps, the launching thread for a task that takes as long as its own. What it waits longer is
lost: its worker has no processor. It accepts to lose a quarter of its time, and MOST_LOST at once;
then it leaves the workers out for a while, twice as long if that comes again soon. It must not be
long: a hypervisor takes a processor for some milliseconds now and then, and without the workers a
step takes up to twice as long. */
#define WORKER_SPIN (1ll << 20)
#define LAUNCHER_SPIN (1ll << 17)
#define TOLERANCE 4
#define MOST_UNHELPED 64
#define MOST_LOST (1ll << 23)
#define LEAST_BACKOFF (1ll << 23)
#define MOST_BACKOFF (1ll << 26)

/* TVM's calling convention of a parallel loop's body: it does its share `task` of `tasks`. */
struct group {
  void *sync;
  int tasks;
};
typedef int (*body_function)(int task, struct group *group, void *data);

struct pool {
  /* Number of the launch in the upper half, its unclaimed tasks in the lower. A task is claimed by
  one compare-and-swap of both. While there are unclaimed tasks nobody changes the fields of the
  loop, so what was read of them before a claim that succeeds is its own. */
  LINE unsigned long long ticket;
  LINE body_function body;
  void *data;
  int tasks;
  int threads;
  int failed;
  /* The launching thread's own notes, times in cycles. */
  long long alone_until;    /* workers are left out */
  long long backoff;        /* for so long, the last time */
  long long lost;           /* waited in vain, less what has been forgiven since */
  long long last_stall;     /* when that was the case last */
  long long unhelped_since; /* no worker has done a task */
  int unhelped;             /* launches since then */
  LINE unsigned launches; /* as in the ticket; what workers sleep on */
  int sleepers;
  int stopped;
  LINE unsigned left; /* tasks that are not done; what the launching thread sleeps on */
  int waiting;
};

static __thread struct pool *current;

#define LOAD(place) __atomic_load_n(&(place), __ATOMIC_SEQ_CST)
#define STORE(place, value) __atomic_store_n(&(place), value, __ATOMIC_SEQ_CST)
#define ADD(place, value) __atomic_add_fetch(&(place), value, __ATOMIC_SEQ_CST)

static void sleep_on(unsigned *word, unsigned value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(unsigned *word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 0x7fffffff, NULL, NULL, 0);
}

static long long now(void) { return (long long)__builtin_ia32_rdtsc(); }

/* Wait until `word` is not (`until_equal`: is) `value`; returns whether it came to that. */
static int spin(unsigned *word, unsigned value, int until_equal, long long cycles) {
  long long begun = now();
  do {
    if ((LOAD(*word) == value) == until_equal) return 1;
    __builtin_ia32_pause();
  } while (now() - begun < cycles);
  return 0;
}

/* Do tasks of the present launch until none is left to claim; returns how many. */
static int work(struct pool *pool) {
  for (int done = 0;; done++) {
    unsigned long long ticket = LOAD(pool->ticket);
    struct group group = {NULL, LOAD(pool->tasks)};
    body_function body = LOAD(pool->body);
    void *data = LOAD(pool->data);
    int unclaimed = (int)(unsigned)ticket;
    if (unclaimed == 0) return done;
    if (!__atomic_compare_exchange_n(&pool->ticket, &ticket, ticket - 1, 0, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST)) {
      done--;
      continue;
    }
    if (body(group.tasks - unclaimed, &group, data) != 0) STORE(pool->failed, 1);
    if (ADD(pool->left, -1) == 0 && LOAD(pool->waiting)) wake(&pool->left);
  }
}

size_t optc_pool_bytes(void) { return sizeof(struct pool); }

/* Loops that the calling thread launches from now on run on `pool` (NULL: on itself alone), whose
memory is zeroed before the first use; `threads` includes the calling one. */
void optc_pool_use(struct pool *pool, int threads) {
  if (pool) STORE(pool->threads, threads);
  current = pool;
}

/* The life of a worker; returns when the pool is stopped. */
void optc_pool_work(struct pool *pool) {
  while (!LOAD(pool->stopped)) {
    unsigned seen = LOAD(pool->launches);
    work(pool);
    if (spin(&pool->launches, seen, 0, WORKER_SPIN)) continue;
    ADD(pool->sleepers, 1);
    if (!LOAD(pool->stopped)) sleep_on(&pool->launches, seen);
    ADD(pool->sleepers, -1);
  }
}

/* End the workers, when no loop runs. */
void optc_pool_stop(struct pool *pool) {
  STORE(pool->stopped, 1);
  ADD(pool->launches, 1);
  wake(&pool->launches);
}

/* Leave the workers out for a while. */
static void leave_out(struct pool *pool, long long time) {
  int again = time - pool->alone_until < TOLERANCE * pool->backoff;
  pool->backoff = again ? 2 * pool->backoff : LEAST_BACKOFF;
  if (pool->backoff > MOST_BACKOFF) pool->backoff = MOST_BACKOFF;
  pool->alone_until = time + pool->backoff;
  pool->lost = 0;
  pool->unhelped = 0;
}

/* The launching thread waited in vain from `begun` to `ended`. */
static void note_stall(struct pool *pool, long long begun, long long ended) {
  pool->lost -= (begun - pool->last_stall) / TOLERANCE;
  if (pool->lost < 0) pool->lost = 0;
  pool->lost += ended - begun;
  pool->last_stall = ended;
  if (pool->lost >= MOST_LOST) leave_out(pool, ended);
}

/* The workers did nothing of a launch. Those that sleep need some launches to come. */
static void note_no_help(struct pool *pool, long long begun) {
  if (pool->unhelped++ == 0) pool->unhelped_since = begun;
  if (pool->unhelped > MOST_UNHELPED && begun - pool->unhelped_since > MOST_LOST)
    leave_out(pool, begun);
}

static int run_alone(body_function body, void *data, int tasks) {
  struct group group = {NULL, tasks};
  for (int task = 0; task < tasks; task++)
    if (body(task, &group, data) != 0) return -1;
  return 0;
}

/* Wait for the tasks that workers have claimed; the launching thread's own took `worked` cycles. */
static void wait_for_workers(struct pool *pool, long long worked) {
  long long begun = now();
  if (spin(&pool->left, 0, 1, LAUNCHER_SPIN + 2 * worked)) return;
  while (LOAD(pool->left)) {
    STORE(pool->waiting, 1);
    unsigned left = LOAD(pool->left);
    if (left) sleep_on(&pool->left, left);
    STORE(pool->waiting, 0);
  }
  note_stall(pool, begun, now());
}

/* TVMBackendParallelLaunch: run body(task, ...) for all tasks; -1 if one failed. */
int optc_pool_launch(body_function body, void *data, int tasks) {
  struct pool *pool = current;
  long long begun = now();
  if (!pool || pool->threads == 1 || begun < pool->alone_until)
    return run_alone(body, data, tasks > 0 ? tasks : 1);
  if (tasks <= 0) tasks = pool->threads;
  STORE(pool->body, body);
  STORE(pool->data, data);
  STORE(pool->tasks, tasks);
  STORE(pool->failed, 0);
  STORE(pool->left, (unsigned)tasks);
  unsigned launch = pool->launches + 1;
  STORE(pool->ticket, (unsigned long long)launch << 32 | (unsigned)tasks);
  STORE(pool->launches, launch);
  if (LOAD(pool->sleepers)) wake(&pool->launches);
  if (work(pool) == tasks)
    note_no_help(pool, begun);
  else
    pool->unhelped = 0;
  wait_for_workers(pool, now() - begun);
  return pool->failed ? -1 : 0;
}
