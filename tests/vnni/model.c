/* VPDPBUSD and VPDPWSSD of AVX-VNNI, on 128 and 256 bits, computed in C.
 *
 * On a processor without them, they raise SIGILL. The handler decodes them, computes what Intel's
 * manual says (volume 2, "VPDPBUSD", "VPDPWSSD") on the registers that the system has saved, counts
 * products of bytes, and goes on behind them: so the very code of an engine runs, instruction by
 * instruction. Kernels name the first one; LLVM takes the second for sums of products of words. */

#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

#include "../amx/operand.h"

enum { BYTES = 32, HALF = 16, OF_BYTES = 0x50, OF_WORDS = 0x52 };
/* Of the area that XSAVE writes, in the standard form that signals have. */
enum { COMPONENTS = 512, UPPER_HALVES = 576, UPPER_BIT = 4 };

static struct sigaction before;

/* Products of bytes, of all threads. */
int64_t optc_vnni_count;

static uint64_t *components(fpregset_t state) { return (uint64_t *)((char *)state + COMPONENTS); }

static char *upper(fpregset_t state, int number) {
  return (char *)state + UPPER_HALVES + HALF * number;
}

static void read_register(fpregset_t state, int number, void *value) {
  memcpy(value, &state->_xmm[number], HALF);
  memset((char *)value + HALF, 0, HALF); /* what it is where the state is the initial one */
  if (*components(state) & UPPER_BIT) memcpy((char *)value + HALF, upper(state, number), HALF);
}

static void write_register(fpregset_t state, int number, const void *value) {
  if (!(*components(state) & UPPER_BIT)) memset(upper(state, 0), 0, 16 * HALF);
  *components(state) |= UPPER_BIT;
  memcpy(&state->_xmm[number], value, HALF);
  memcpy(upper(state, number), (const char *)value + HALF, HALF);
}

/* Four products of unsigned and signed bytes are added to each sum, modulo 2^32. */
static void add_products(uint32_t *sums, const uint8_t *one, const int8_t *other, int bytes) {
  for (int i = 0; i < bytes; i++) sums[i / 4] += (uint32_t)((int32_t)one[i] * other[i]);
}

/* Two products of signed words are added to each sum, modulo 2^32. */
static void add_words(uint32_t *sums, const uint8_t *one, const int8_t *other, int bytes) {
  int16_t a[BYTES / 2], b[BYTES / 2];
  memcpy(a, one, bytes), memcpy(b, other, bytes);
  for (int i = 0; i < bytes / 2; i++) sums[i / 2] += (uint32_t)((int32_t)a[i] * b[i]);
}

/* What lies behind the instruction at `code`; 0 if it is another. */
static const uint8_t *execute(const uint8_t *code, ucontext_t *context) {
  greg_t *registers = context->uc_mcontext.gregs;
  fpregset_t state = context->uc_mcontext.fpregs;
  uint32_t sums[BYTES / 4];
  uint8_t one[BYTES], *address;
  int8_t other[BYTES];
  int64_t index;
  int opcode = code[3], bytes = code[2] & 4 ? BYTES : HALF;
  if (code[0] != 0xc4 || (code[1] & 0x1f) != 2 || (code[2] & 0x83) != 1) return 0;
  if (opcode != OF_BYTES && opcode != OF_WORDS) return 0;
  int r = !(code[1] & 0x80), x = !(code[1] & 0x40), b = !(code[1] & 0x20);
  int target = (code[4] >> 3 & 7) | r << 3;
  read_register(state, target, sums);
  read_register(state, ~(code[2] >> 3) & 15, one);
  if (code[4] >> 6 == 3) {
    read_register(state, (code[4] & 7) | b << 3, other);
    code += 5;
  } else {
    code = operand(code + 4, registers, x, b, &address, &index);
    memcpy(other, address + index, bytes);
  }
  (opcode == OF_BYTES ? add_products : add_words)(sums, one, other, bytes);
  memset((char *)sums + bytes, 0, BYTES - bytes);
  write_register(state, target, sums);
  __atomic_fetch_add(&optc_vnni_count, opcode == OF_BYTES, __ATOMIC_RELAXED);
  return code;
}

static void handle(int number, siginfo_t *info, void *context) {
  greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
  const uint8_t *behind = execute((const uint8_t *)registers[REG_RIP], context);
  if (behind) registers[REG_RIP] = (greg_t)behind;
  else if (before.sa_flags & SA_SIGINFO) before.sa_sigaction(number, info, context); /* a model */
  else sigaction(SIGILL, &before, 0); /* it is raised once more, for whoever was there */
}

void optc_vnni_install(void) {
  struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_NODEFER};
  sigaction(SIGILL, &action, &before);
}
