/* Threads of an engine's parallel loops, in place of TVM's pool (backends/tvm/loaded/thread_pool.py).

TVM's threads wait by giving up the processor again and again (sched_yield). Beside other programs
that puts them behind those for milliseconds, many times a step. Here
- a long loop is cut into more tasks than threads. Each thread has a run of them, which it does in
  order, and takes half of another's rest when it has none: a hypervisor and other programs take
  processors unequally;
- the launching thread does what no other has begun;
- who waits spins without yielding, then sleeps;
- where workers hold up the launching thread, or get no processor, it runs loops alone for a while.

The memory of a pool is its owner's, zeroed, of optc_pool_bytes() bytes. One thread launches, any
number work. On Linux only the C library's syscall() is needed; elsewhere, and where OPTC_POSIX is
defined, POSIX threads. */

#include <stddef.h>

#include "clock.h"
#include "schedstat.h"
#include "sleeping.h"

#define LINE _Alignas(64)
/* Times are cycles of `now`, some 3 per nanosecond. A worker spins over what lies between
two steps (a processor without work is one that a hypervisor gives away), the launching thread for
a task that takes as long as its own. What it waits longer is lost, if meanwhile its workers waited
for processors that other programs had: where a hypervisor had taken them, the workers are soon
back. It accepts to lose a share of its time, and MOST_LOST at once; then it leaves the workers out
for a while, twice as long if that comes again soon. */
#define WORKER_SPIN (1ll << 23)
#define LAUNCHER_SPIN (1ll << 17)
#define TOLERANCE 8
#define MOST_UNHELPED 64
#define MOST_LOST (1ll << 22)
#define LEAST_BACKOFF (1ll << 23)
#define MOST_BACKOFF (1ll << 29)
/* Each thread's run of a loop is cut into tasks of about so many cycles, at most MOST_PIECES. */
#define PIECE (1ll << 17)
#define MOST_PIECES 16
#define MOST_THREADS 256
/* Most cycles of a nanosecond, and some for a wait that is a part of the time lost. */
#define CYCLES 6
#define MOST_TASKS 0xffff
/* Loops whose time is remembered: more than an engine has. A power of two. */
#define PACES 64

/* TVM's calling convention of a parallel loop's body: it does its share `task` of `tasks`. */
struct group {
  void *sync;
  int tasks;
};
typedef int (*body_function)(int task, struct group *group, void *data);

/* How long a loop took the last time. */
struct pace {
  body_function body;
  long long cycles;
};

struct pool {
  /* The loop. While it has unclaimed tasks nobody changes these fields, so what was read of them
  before a claim that succeeds is its own. */
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
  long long waited;         /* by the workers for processors, ns, when that was looked at last */
  long long asked;          /* when that was */
  long long unhelped_since; /* no worker has done a task */
  int unhelped;             /* launches since then */
  struct pace paces[PACES];
  LINE unsigned launches; /* as in the runs; what workers sleep on */
  int workers;
  int ids[MOST_THREADS]; /* the system's, of the workers; 0 is none */
  int sleepers;
  int stopped;
  LINE unsigned left; /* tasks that are not done; what the launching thread sleeps on */
  int waiting;
  /* Unclaimed tasks of each thread, the launching one first: number of the launch, first task,
  task behind the last (32, 16, 16 bits). They are claimed by one compare-and-swap of all. */
  LINE unsigned long long runs[MOST_THREADS];
};

static __thread struct pool *current;

#define LOAD(place) __atomic_load_n(&(place), __ATOMIC_SEQ_CST)
#define STORE(place, value) __atomic_store_n(&(place), value, __ATOMIC_SEQ_CST)
#define ADD(place, value) __atomic_add_fetch(&(place), value, __ATOMIC_SEQ_CST)

/* Wait until `word` is not (`until_equal`: is) `value`; returns whether it came to that. */
static int spin(unsigned *word, unsigned value, int until_equal, long long cycles) {
  long long begun = now();
  do {
    if ((LOAD(*word) == value) == until_equal) return 1;
    pause_briefly();
  } while (now() - begun < cycles);
  return 0;
}

static unsigned long long run_of(unsigned launch, unsigned first, unsigned end) {
  return (unsigned long long)launch << 32 | first << 16 | end;
}

/* Claim a task of the thread's own run, else the upper half of another's rest, whose first task it
does and whose others become its own run. -1 if there is none. Only runs of the launch that its own
is of are looked at: the launching thread will not write it again before the next launch. */
static int claim(struct pool *pool, int self, struct group *group, body_function *body,
                 void **data) {
  int threads = LOAD(pool->threads);
  unsigned launch = (unsigned)(LOAD(pool->runs[self]) >> 32);
  for (int i = 0; i < threads;) {
    int from = (self + i) % threads;
    unsigned long long run = LOAD(pool->runs[from]);
    unsigned first = (unsigned)run >> 16, end = (unsigned)run & 0xffff;
    if ((unsigned)(run >> 32) != launch || first == end) {
      i++;
      continue;
    }
    *body = LOAD(pool->body);
    *data = LOAD(pool->data);
    group->tasks = LOAD(pool->tasks);
    unsigned task = from == self ? first : first + (end - first) / 2;
    unsigned long long rest = from == self ? run_of(launch, first + 1, end)
                                           : run_of(launch, first, task);
    if (!__atomic_compare_exchange_n(&pool->runs[from], &run, rest, 0, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST))
      continue;
    if (from != self) STORE(pool->runs[self], run_of(launch, task + 1, end));
    return (int)task;
  }
  return -1;
}

/* Do tasks of the present launch until none is left to claim; returns how many. */
static int work(struct pool *pool, int self) {
  struct group group = {NULL, 0};
  body_function body;
  void *data;
  for (int done = 0;; done++) {
    int task = claim(pool, self, &group, &body, &data);
    if (task < 0) return done;
    if (body(task, &group, data) != 0) STORE(pool->failed, 1);
    if (ADD(pool->left, -1) == 0 && LOAD(pool->waiting)) wake(&pool->left);
  }
}

size_t optc_pool_bytes(void) { return sizeof(struct pool); }

/* Loops that the calling thread launches from now on run on `pool` (NULL: on itself alone), whose
memory is zeroed before the first use; `threads` includes the calling one. */
void optc_pool_use(struct pool *pool, int threads) {
  if (pool) STORE(pool->threads, threads < MOST_THREADS ? threads : MOST_THREADS);
  current = pool;
}

/* The life of a worker; returns when the pool is stopped. */
void optc_pool_work(struct pool *pool) {
  int self = ADD(pool->workers, 1);
  if (self >= MOST_THREADS) return;
  STORE(pool->ids[self], thread_number());
  while (!LOAD(pool->stopped)) {
    unsigned seen = LOAD(pool->launches);
    work(pool, self);
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

/* Whether workers waited for processors that other programs had, since this was asked last, for most
of the cycles that were lost and a share of all that passed, in which many workers add up small
waits; so it is taken to be where the system does not say. */
static int was_crowded(struct pool *pool, long long cycles, long long time) {
  long long waited = 0;
  for (int i = 1; i < pool->threads; i++) {
    int id = LOAD(pool->ids[i]);
    long long wait = id ? wait_of(id) : 0;
    if (wait < 0) return 1;
    waited += wait;
  }
  long long since = (waited - pool->waited) * CYCLES, passed = time - pool->asked;
  pool->waited = waited;
  pool->asked = time;
  return since >= cycles && since * TOLERANCE >= passed;
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
  if (!was_crowded(pool, ended - begun, ended)) return;
  pool->lost -= (begun - pool->last_stall) / TOLERANCE;
  if (pool->lost < 0) pool->lost = 0;
  pool->lost += ended - begun;
  pool->last_stall = ended;
  if (pool->lost >= MOST_LOST) leave_out(pool, ended);
}

/* The workers did nothing of a launch. Those that sleep need some launches to come. */
static void note_no_help(struct pool *pool, long long begun) {
  if (pool->unhelped++ == 0) pool->unhelped_since = begun;
  long long since = begun - pool->unhelped_since;
  if (pool->unhelped <= MOST_UNHELPED || since <= MOST_LOST) return;
  pool->unhelped = 0;
  if (was_crowded(pool, since, begun)) leave_out(pool, begun);
}

static int run_alone(body_function body, void *data, int tasks) {
  struct group group = {NULL, tasks};
  for (int task = 0; task < tasks; task++)
    if (body(task, &group, data) != 0) return -1;
  return 0;
}

/* Wait for the tasks that workers have claimed; each of the launching thread's took `each` cycles. */
static void wait_for_workers(struct pool *pool, long long each) {
  long long begun = now();
  if (spin(&pool->left, 0, 1, LAUNCHER_SPIN + 2 * each)) return;
  while (LOAD(pool->left)) {
    STORE(pool->waiting, 1);
    unsigned left = LOAD(pool->left);
    if (left) sleep_on(&pool->left, left);
    STORE(pool->waiting, 0);
  }
  note_stall(pool, begun, now());
}

/* How many tasks each thread gets of a loop that took so long the last time. */
static int pieces_of(const struct pace *pace, body_function body) {
  long long pieces = pace->body == body ? pace->cycles / PIECE : 1;
  return (int)(pieces < 1 ? 1 : pieces > MOST_PIECES ? MOST_PIECES : pieces);
}

/* Give every thread its run of the loop's tasks, and let the workers begin. */
static void publish(struct pool *pool, body_function body, void *data, int tasks) {
  unsigned launch = pool->launches + 1, threads = (unsigned)pool->threads;
  STORE(pool->body, body);
  STORE(pool->data, data);
  STORE(pool->tasks, tasks);
  STORE(pool->failed, 0);
  STORE(pool->left, (unsigned)tasks);
  for (unsigned i = 0; i < threads; i++)
    STORE(pool->runs[i], run_of(launch, tasks * i / threads, tasks * (i + 1) / threads));
  STORE(pool->launches, launch);
  if (LOAD(pool->sleepers)) wake(&pool->launches);
}

/* TVMBackendParallelLaunch: run body(task, ...) for all tasks; -1 if one failed. `tasks` is 0: as
many as the pool likes. */
int optc_pool_launch(body_function body, void *data, int tasks) {
  struct pool *pool = current;
  long long begun = now();
  if (!pool || pool->threads == 1 || begun < pool->alone_until || tasks > MOST_TASKS)
    return run_alone(body, data, tasks > 0 ? tasks : 1);
  struct pace *pace = &pool->paces[((size_t)body >> 4) % PACES];
  if (tasks <= 0) tasks = pool->threads * pieces_of(pace, body);
  publish(pool, body, data, tasks);
  int done = work(pool, 0);
  long long worked = now() - begun;
  *pace = (struct pace){body, worked};
  if (done == tasks)
    note_no_help(pool, begun);
  else
    pool->unhelped = 0;
  wait_for_workers(pool, worked / (done + 1));
  return pool->failed ? -1 : 0;
}
