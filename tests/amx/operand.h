/* Operands in memory, of instructions that a model computes. */

#include <stdint.h>
#include <string.h>
#include <ucontext.h>

static int64_t value_of(const greg_t *registers, int number) {
  static const int places[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                 REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                 REG_R12, REG_R13, REG_R14, REG_R15};
  return registers[places[number]];
}

/* The address of an operand in memory behind its ModRM byte; the stride's register apart. */
static const uint8_t *operand(const uint8_t *code, const greg_t *registers, int x, int b,
                              uint8_t **address, int64_t *stride) {
  int mod = code[0] >> 6, rm = code[0] & 7, base = rm | b << 3, relative = 0;
  int64_t place = 0, displacement = 0;
  *stride = 0;
  code++;
  if (rm == 4) {
    int index = (code[0] >> 3 & 7) | x << 3;
    base = (code[0] & 7) | b << 3;
    if (index != 4) *stride = value_of(registers, index) * (1 << (code[0] >> 6));
    if (mod == 0 && (code[0] & 7) == 5) base = -1;
    code++;
  } else if (mod == 0 && rm == 5) {
    base = -1, relative = 1;
  }
  if (base >= 0) place = value_of(registers, base);
  if (mod == 1) {
    displacement = (int8_t)*code++;
  } else if (mod == 2 || base < 0) {
    int32_t wide;
    memcpy(&wide, code, 4);
    displacement = wide, code += 4;
  }
  if (relative) place = (int64_t)code;
  *address = (uint8_t *)(place + displacement);
  return code;
}
