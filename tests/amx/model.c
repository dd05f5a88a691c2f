/* The tile instructions of AMX, computed in C.
 *
 * On a processor without AMX, each of them raises SIGILL. The handler decodes the instruction,
 * computes what Intel's manual says (volume 2, "TDPBSSD" and others) on tiles of the thread, counts
 * it, and goes on behind it: so the very code of an engine runs, instruction by instruction. What a
 * processor would refuse (a tile that is not configured, shapes that do not fit) ends the process
 * with a message. */

#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "operand.h"

enum { TILES = 8, ROWS = 16, BYTES = 64 };
enum { CONFIG, RELEASE, ZERO, LOAD, STORE, DOT8, DOT16, KINDS };

typedef struct {
  uint8_t rows[TILES], configured;
  uint16_t bytes[TILES];
  uint8_t data[TILES][ROWS][BYTES];
} Tiles;

static __thread Tiles tiles;
static struct sigaction before;

/* Instructions of each kind, then multiply-adds of bytes and of bfloat16, of all threads. */
int64_t optc_amx_counts[KINDS + 2];

static void count(int kind, int64_t number) {
  __atomic_fetch_add(&optc_amx_counts[kind], number, __ATOMIC_RELAXED);
}

static void refuse(const char *reason) {
  char text[128];
  int size = snprintf(text, sizeof text, "model of AMX: %s\n", reason);
  ssize_t written = write(2, text, (size_t)size);
  (void)written;
  abort();
}

static void configured(int tile) {
  if (!tiles.configured || !tiles.rows[tile] || !tiles.bytes[tile]) refuse("tile without a shape");
}

static void configure(const uint8_t *from) {
  memset(&tiles, 0, sizeof tiles);
  if (from[0] == 0) return;
  if (from[0] != 1) refuse("unknown palette");
  for (int i = 1; i < 16; i++) if (from[i]) refuse("bytes 1 to 15 of a configuration are not 0");
  for (int i = 32; i < 48; i++) if (from[i]) refuse("a ninth tile has columns");
  for (int i = 56; i < 64; i++) if (from[i]) refuse("a ninth tile has rows");
  for (int t = 0; t < TILES; t++) {
    memcpy(&tiles.bytes[t], from + 16 + 2 * t, 2);
    tiles.rows[t] = from[48 + t];
    if (tiles.bytes[t] > BYTES || tiles.rows[t] > ROWS) refuse("a tile is too large");
    if (!tiles.bytes[t] != !tiles.rows[t]) refuse("a tile has rows or columns alone");
  }
  tiles.configured = 1;
}

static void check_shapes(int c, int a, int b) {
  configured(c), configured(a), configured(b);
  if (c == a || c == b || a == b) refuse("a product of a tile with itself");
  if (tiles.rows[c] != tiles.rows[a]) refuse("rows of a sum and of its first factor differ");
  if (tiles.bytes[c] != tiles.bytes[b]) refuse("columns of a sum and of its second factor differ");
  if (tiles.bytes[a] != 4 * tiles.rows[b]) refuse("factors do not fit each other");
}

/* Signed or unsigned bytes of the factors, sums modulo 2^32. */
static void multiply_bytes(int c, int a, int b, int signed_a, int signed_b) {
  int columns = tiles.bytes[c] / 4;
  check_shapes(c, a, b);
  for (int m = 0; m < tiles.rows[c]; m++) {
    uint32_t *sums = (uint32_t *)tiles.data[c][m];
    for (int k = 0; k < tiles.rows[b]; k++)
      for (int i = 0; i < 4; i++) {
        uint8_t raw = tiles.data[a][m][4 * k + i];
        int32_t one = signed_a ? (int8_t)raw : raw;
        const uint8_t *row = tiles.data[b][k] + i;
        if (signed_b)
          for (int n = 0; n < columns; n++) sums[n] += (uint32_t)(one * (int8_t)row[4 * n]);
        else
          for (int n = 0; n < columns; n++) sums[n] += (uint32_t)(one * row[4 * n]);
      }
  }
  count(DOT8, 1);
  count(KINDS, (int64_t)tiles.rows[c] * columns * tiles.bytes[a]);
}

/* Denormals are zero, before and behind. */
static float flushed(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if (!(bits & 0x7f800000)) bits &= 0x80000000;
  memcpy(&value, &bits, 4);
  return value;
}

static float widened(const uint8_t *at) {
  uint32_t bits = (uint32_t)at[0] << 16 | (uint32_t)at[1] << 24;
  float value;
  memcpy(&value, &bits, 4);
  return flushed(value);
}

/* Even and odd products are summed apart, by multiply-adds that round once; both sums are added,
 * then to what was there. */
static void multiply_bf16(int c, int a, int b) {
  int columns = tiles.bytes[c] / 4;
  check_shapes(c, a, b);
  for (int m = 0; m < tiles.rows[c]; m++) {
    float parts[2][ROWS] = {{0}};
    for (int k = 0; k < tiles.rows[b]; k++)
      for (int i = 0; i < 2; i++) {
        float one = widened(&tiles.data[a][m][4 * k + 2 * i]);
        for (int n = 0; n < columns; n++) {
          float other = widened(&tiles.data[b][k][4 * n + 2 * i]);
          parts[i][n] = flushed(__builtin_fmaf(one, other, parts[i][n]));
        }
      }
    float *sums = (float *)tiles.data[c][m];
    for (int n = 0; n < columns; n++)
      sums[n] = flushed(flushed(sums[n]) + flushed(parts[0][n] + parts[1][n]));
  }
  count(DOT16, 1);
  count(KINDS + 1, (int64_t)tiles.rows[c] * columns * tiles.bytes[a] / 2);
}

static void move(int tile, uint8_t *at, int64_t stride, int store) {
  configured(tile);
  if (!store) memset(tiles.data[tile], 0, sizeof tiles.data[tile]);
  for (int row = 0; row < tiles.rows[tile]; row++, at += stride)
    if (store) memcpy(at, tiles.data[tile][row], tiles.bytes[tile]);
    else memcpy(tiles.data[tile][row], at, tiles.bytes[tile]);
  count(store ? STORE : LOAD, 1);
}

/* What lies behind the instruction at `code`; 0 if it is none of a tile. */
static const uint8_t *execute(const uint8_t *code, const greg_t *registers) {
  if (code[0] != 0xc4 || (code[1] & 0x1f) != 2 || code[2] & 0x84) return 0;
  int x = !(code[1] & 0x40), b = !(code[1] & 0x20), prefix = code[2] & 3, opcode = code[3];
  int second = ~(code[2] >> 3) & 15, mod = code[4] >> 6, tile = code[4] >> 3 & 7, rm = code[4] & 7;
  uint8_t *address;
  int64_t stride;
  if (opcode == 0x49 && prefix == 0 && mod != 3) {
    code = operand(code + 4, registers, x, b, &address, &stride);
    configure(address);
    count(CONFIG, 1);
  } else if (opcode == 0x49 && prefix == 0) {
    memset(&tiles, 0, sizeof tiles);
    count(RELEASE, 1);
    code += 5;
  } else if (opcode == 0x49 && prefix == 3 && mod == 3) {
    configured(tile);
    memset(tiles.data[tile], 0, sizeof tiles.data[tile]);
    count(ZERO, 1);
    code += 5;
  } else if (opcode == 0x4b && prefix && mod != 3) {
    code = operand(code + 4, registers, x, b, &address, &stride);
    move(tile, address, stride, prefix == 2);
  } else if (opcode == 0x5e && mod == 3) {
    multiply_bytes(tile, rm, second, prefix >> 1, prefix & 1);
    code += 5;
  } else if (opcode == 0x5c && prefix == 2 && mod == 3) {
    multiply_bf16(tile, rm, second);
    code += 5;
  } else {
    return 0;
  }
  return code;
}

static void handle(int number, siginfo_t *info, void *context) {
  greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
  const uint8_t *behind = execute((const uint8_t *)registers[REG_RIP], registers);
  if (behind) registers[REG_RIP] = (greg_t)behind;
  else if (before.sa_flags & SA_SIGINFO) before.sa_sigaction(number, info, context); /* a model */
  else sigaction(SIGILL, &before, 0); /* it is raised once more, for whoever was there */
}

void optc_amx_install(void) {
  struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_NODEFER};
  sigaction(SIGILL, &action, &before);
}
