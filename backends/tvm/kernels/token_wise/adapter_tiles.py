"""LoRA adapters by tiles of AMX, which multiply bfloat16 only.

A float32 is the sum of two bfloat16, its *pieces*, but for 2**-18 of it; an int8 is one. Of the
products of pieces, those of both small ones are left out. Rows of one adapter that follow each
other are a run of up to 64, for which pieces of its matrices are made step by step. Tiles round as
vectors do not, so that a row alone is multiplied by tiles, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.dsl import bf16
from optc.backends.tvm.kernels.dsl.script import (
    LANES,
    Expr,
    bind,
    for_rows,
    load,
    register,
    scratch,
    splat,
    store,
    workspace,
)
from optc.backends.tvm.kernels.dsl.vectors import load_part, store_part
from optc.backends.tvm.kernels.matmul.amx import instructions as amx

#: Tiles of rows that one run has at most; the registers of their sums are the first ones.
_TILES = 4
_ROWS, _WEIGHTS = 4, (5, 6)
#: Input channels of a product at most.
STEP = amx.BYTES // 2
#: Columns that one task of `Grow` computes.
_COLUMNS = 4 * LANES


@dataclass(frozen=True)
class Runs:
    """Rows of one adapter that follow each other.

    Attributes:
        count: How many runs there are.
        first: int32 [T], the first row of each.
        length: int32 [T], its rows.
    """

    count: Expr
    first: Expr
    length: Expr


def find_runs(adapters: Expr, rows: Expr, most: int) -> Runs:
    """Runs of at most ``most`` of all ``rows``."""
    first, length = scratch((rows,), "int32"), scratch((rows,), "int32")
    count = register(0, "int32", 1)
    with tir.serial(0, rows) as row:
        last = bind(tir.max(count.get() - 1, 0))
        same = bind(adapters[row] == adapters[tir.max(row - 1, 0)])
        with tir.If(tir.And(tir.And(row > 0, same), length[last] < most)):
            with tir.Then():
                store(length, length[last] + 1, last)
            with tir.Else():
                store(first, row, count.get())
                store(length, tir.int32(1), count.get())
                count.set(count.get() + 1)
    return Runs(bind(count.get()), first, length)


@dataclass(frozen=True)
class Pieces:
    """Rows as bfloat16.

    Attributes:
        bits: u16 [rows, pieces, width]; 15 rows more than there are, which tiles may load.
        pieces: 1 or 2.
    """

    bits: Expr
    pieces: int

    @property
    def width(self) -> int:
        """Values of a row."""
        return int(self.bits.shape[2])

    def write(self, x: Expr, rows: Expr, count: int, parallel: Expr) -> None:
        """The ``count`` columns of ``x``, int8 or float32, and zeros behind them."""
        whole, rest = divmod(count, LANES)

        def body(row: Expr) -> None:
            with tir.serial(0, whole) as i:
                self._put(row, bind(i * LANES), load(x, row, i * LANES))
            if rest:
                self._put(row, tir.int32(whole * LANES), load_part(x, rest, row, whole * LANES))
            with tir.serial(-(-count // LANES), self.width // LANES) as i:
                self._put(row, bind(i * LANES), splat(0.0))

        for_rows(rows, parallel, body)

    def _put(self, row: Expr, d: Expr, values: Expr) -> None:
        rest = bind(tir.cast(values, f"float32x{LANES}"))
        for piece, bits in enumerate(_pieces(rest, self.pieces)):
            store(self.bits, bf16.upper_half(bits), row, piece, d)


@dataclass(frozen=True)
class Product:
    """Rows of a run times 16 columns of a matrix, in memory of one task.

    Attributes:
        x: The rows.
        depth: Channels of a step, an even number up to 32.
        weights: u32 [2 pieces, depth / 2, 16], of one step.
        sums: float32 [64, 16].
        config: u8, of tiles.
    """

    x: Pieces
    depth: int
    weights: Expr
    sums: Expr
    config: Expr

    @classmethod
    def of(cls, x: Pieces, depth: int) -> Product:
        """With memory of its own."""
        weights = scratch((2, depth // 2, LANES), "uint32")
        sums = scratch((_TILES * amx.ROWS, LANES))
        return cls(x, depth, weights, sums, scratch((amx.CONFIG_BYTES,), "uint8"))

    def configure(self, rows: Expr) -> None:
        """Shapes for a run of so many rows; the last tile of several has rows that nobody reads."""
        height = bind(tir.min(rows, amx.ROWS))
        shapes = {tile: amx.Shape(height) for tile in range(_TILES)}
        shapes[_ROWS] = amx.Shape(height, 2 * self.depth)
        shapes |= dict.fromkeys(_WEIGHTS, amx.Shape(self.depth // 2))
        amx.start_config(self.config)
        amx.configure(self.config, shapes)

    def start(self) -> None:
        """Zero the sums."""
        for tile in range(_TILES):
            amx.zero(tile)

    def add(self, first: Expr, rows: Expr, channel: Expr) -> None:
        """Add the products of a step, whose weights `put` wrote, with the run's rows from
        ``first`` on and their channels from ``channel`` on."""
        for piece, tile in enumerate(_WEIGHTS):
            amx.load(tile, tir.address_of(self.weights[piece, 0, 0]), 4 * LANES)
        stride = 2 * self.x.pieces * self.x.width
        for tile in range(_TILES):
            with tir.If(rows > tile * amx.ROWS), tir.Then():
                for piece in range(self.x.pieces):
                    start = self.x.bits[first + tile * amx.ROWS, piece, channel]
                    amx.load(_ROWS, tir.address_of(start), stride)
                    for weights in _WEIGHTS[: 2 - piece]:
                        amx.dot_bfloat16(tile, _ROWS, weights)

    def put(self, pair: Expr | int, even: Expr, odd: Expr) -> None:
        """Write a pair of rows of weights, float32 of 16 columns."""
        halves = zip(_pieces(even, 2), _pieces(odd, 2), strict=True)
        for piece, (low, high) in enumerate(halves):
            store(self.weights, (low >> splat(16, "uint32")) | high, piece, pair, 0)

    def finish(self, rows: Expr) -> None:
        """Store the sums."""
        for tile in range(_TILES):
            with tir.If(rows > tile * amx.ROWS), tir.Then():
                amx.store(tile, tir.address_of(self.sums[tile * amx.ROWS, 0]), 4 * LANES)


def _pieces(values: Expr, count: int) -> list[Expr]:
    """Bits of the nearest bfloat16, and of that of what is left, in upper halves."""
    rest = bind(values)
    found: list[Expr] = []
    for piece in range(count):
        bits = bf16.round_bits(rest)
        found.append(bits)
        if piece + 1 < count:
            rest = bind(rest - bf16.as_float(bits))
    return found


@dataclass(frozen=True)
class Shrink:
    """`optc.backends.tvm.kernels.token_wise.adapters.adapter_shrink` by tiles.

    Attributes:
        x: f32 [T,k], or i8 [each * T, k rounded up to 32].
        scale: f32 [each * T] of int8, else None.
        each: Rows of x for one of the step.
        adapters: i32 [T].
        a: f32 [M,k,width].
        out: f32 [T,width].
    """

    x: Expr
    scale: Expr | None
    each: int
    adapters: Expr
    a: Expr
    out: Expr

    def emit(self, parallel: Expr) -> None:
        """All rows, on all threads if ``parallel``."""
        k, vectors = int(self.a.shape[1]), int(self.out.shape[1]) // LANES
        rows, padded = self.x.shape[0], -(-k // STEP) * STEP
        pieces = 1 if self.scale is not None else 2
        with workspace((rows + amx.ROWS, pieces, padded), "uint16") as bits:
            x = Pieces(bits, pieces)
            x.write(self.x, rows, int(self.x.shape[1]), parallel)
            runs = find_runs(self.adapters, self.out.shape[0], _TILES * amx.ROWS // self.each)

            def body(task: Expr) -> None:
                run, column = bind(task // vectors), bind(task % vectors * LANES)
                with tir.If(self.adapters[runs.first[run]] >= 0), tir.Then():
                    self._run(x, bind(runs.first[run]), bind(runs.length[run]), column)

            for_rows(runs.count * vectors, parallel, body)

    def _run(self, x: Pieces, first: Expr, length: Expr, column: Expr) -> None:
        """16 columns of a run."""
        slot, each, product = bind(self.adapters[first]), self.each, Product.of(x, STEP)
        product.configure(length * each)
        product.start()
        whole, rest = divmod(int(self.a.shape[1]), STEP)

        def put(pair: Expr | int, channel: Expr | int) -> None:
            even, odd = (load(self.a, slot, channel + i, column) for i in range(2))
            product.put(pair, even, odd)

        with tir.serial(0, whole) as step:
            with tir.serial(0, STEP // 2) as pair:
                put(pair, step * STEP + 2 * pair)
            product.add(first * each, length * each, step * STEP)
        if rest:
            none = splat(0.0)
            with tir.serial(0, rest // 2) as pair:
                put(pair, whole * STEP + 2 * pair)
            if rest % 2:
                product.put(rest // 2, load(self.a, slot, whole * STEP + rest - 1, column), none)
            with tir.serial((rest + 1) // 2, STEP // 2) as pair:
                product.put(pair, none, none)
            product.add(first * each, length * each, tir.int32(whole * STEP))
        product.finish(length * each)
        amx.release()
        with tir.serial(0, length) as row:
            store(self.out, self._scaled(product, first, row), first + row, column)

    def _scaled(self, product: Product, first: Expr, row: Expr) -> Expr:
        total = load(product.sums, row * self.each, 0)
        if self.scale is None:
            return total
        total = total * splat(self.scale[(first + row) * self.each])
        for low in range(1, self.each):
            factor = splat(self.scale[(first + row) * self.each + low])
            total = bind(total) + load(product.sums, row * self.each + low, 0) * factor
        return total


@dataclass(frozen=True)
class Grow:
    """`optc.backends.tvm.kernels.token_wise.adapters.adapter_grow` by tiles.

    Attributes:
        y: f32 [T,n].
        h: f32 [T,parts*rank].
        adapters: i32 [T].
        b: f32 [M,rank,n].
        out: f32 [T,n].
    """

    y: Expr
    h: Expr
    adapters: Expr
    b: Expr
    out: Expr

    def emit(self, starts: tuple[int, ...], parallel: Expr) -> None:
        """All rows, on all threads if ``parallel``; ``starts`` are the parts' first columns."""
        rows, width, n = self.h.shape[0], int(self.h.shape[1]), int(self.out.shape[1])
        with workspace((rows + amx.ROWS, 2, width), "uint16") as bits:
            h = Pieces(bits, 2)
            h.write(self.h, rows, width, parallel)
            runs = find_runs(self.adapters, rows, _TILES * amx.ROWS)
            for part, (start, stop) in enumerate(zip(starts, (*starts[1:], n), strict=True)):
                blocks, rest = divmod(stop - start, _COLUMNS)

                def whole(
                    task: Expr, blocks: int = blocks, start: int = start, part: int = part
                ) -> None:
                    column = bind(task % blocks * _COLUMNS + start)
                    counts = [LANES] * (_COLUMNS // LANES)
                    self._run(h, runs, bind(task // blocks), part, column, counts)

                if blocks:
                    for_rows(runs.count * blocks, parallel, whole)
                if rest:
                    counts = [min(LANES, rest - i) for i in range(0, rest, LANES)]
                    with tir.serial(0, runs.count) as run:
                        self._run(h, runs, run, part, tir.int32(stop - rest), counts)

    def _run(
        self, h: Pieces, runs: Runs, run: Expr, part: int, column: Expr, counts: list[int]
    ) -> None:
        """Vectors of a run from a column on, of so many columns each."""
        first, length = bind(runs.first[run]), bind(runs.length[run])
        slot, rank = bind(self.adapters[first]), int(self.b.shape[1])
        depth = amx.even_depth(2 * rank) // 2
        product = Product.of(h, depth)
        with tir.If(slot >= 0):
            with tir.Then():
                product.configure(length)
                for i, count in enumerate(counts):
                    at = bind(column + i * LANES)
                    product.start()
                    with tir.serial(0, rank // depth) as step:
                        with tir.serial(0, depth // 2) as pair:
                            channel = bind(step * depth + 2 * pair)
                            even, odd = (
                                load_part(self.b, count, slot, channel + i, at) for i in range(2)
                            )
                            product.put(pair, even, odd)
                        product.add(first, length, part * rank + step * depth)
                    product.finish(length)
                    self._write(first, length, at, count, product.sums)
                amx.release()
            with tir.Else():
                for i, count in enumerate(counts):
                    self._write(first, length, bind(column + i * LANES), count, None)

    def _write(
        self, first: Expr, length: Expr, column: Expr, count: int, sums: Expr | None
    ) -> None:
        with tir.serial(0, length) as row:
            value = load_part(self.y, count, first + row, column)
            grown = value if sums is None else value + load(sums, row, 0)
            store_part(self.out, grown, count, first + row, column)
