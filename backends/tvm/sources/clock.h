/* The processor's clock, and a short rest of who spins. */

#if defined(__x86_64__)

/* Cycles of the time stamp counter, some 3 per nanosecond. */
static long long now(void) { return (long long)__builtin_ia32_rdtsc(); }

static void pause_briefly(void) { __builtin_ia32_pause(); }

#elif defined(__aarch64__)

/* The generic timer counts 24 million to a billion times a second: as many cycles of 3 GHz. */
static long long now(void) {
  static long long cycles;
  long long count, frequency;
  if (!__atomic_load_n(&cycles, __ATOMIC_RELAXED)) {
    __asm__("mrs %0, cntfrq_el0" : "=r"(frequency));
    long long each = frequency > 0 ? 3000000000ll / frequency : 1;
    __atomic_store_n(&cycles, each > 0 ? each : 1, __ATOMIC_RELAXED);
  }
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(count));
  return count * cycles;
}

/* `yield` does nothing on most processors; `isb` takes some ten nanoseconds. */
static void pause_briefly(void) { __asm__ volatile("isb" ::: "memory"); }

#else
#error "no clock for this processor"
#endif
