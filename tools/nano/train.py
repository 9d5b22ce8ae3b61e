"""Trains the nano model: two processes of one thread each, shared flat arrays.

    python3 tools/nano/train.py --minutes 60 --run FOLDER [--resume FOLDER/state.npz]

Each process computes half of every batch and then updates half of the parameters; three barriers a
step.  Master weights are float32; the forward pass uses a copy rounded to what the checkpoint
stores (BF16, MXFP4), and the copy's gradient is given to the master.  The learning rate follows a
cosine over elapsed time, so the run ends on time whatever else the machine does.

Writes into FOLDER: tiktoken.model, state.npz (every few minutes and at the end), log lines to
standard output.
"""

import argparse
import ctypes
import math
import mmap
import multiprocessing
import os
import sys
import time

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # before the libraries are loaded

import numpy as np  # noqa: E402
import torch  # noqa: E402

import bpe  # noqa: E402
import corpus  # noqa: E402
from kernels import f32, library  # noqa: E402
from layout import Geometry, Layout, initial_weights  # noqa: E402
from model import Mode, Model  # noqa: E402

N_PROCESSES = 2
N_RANKS = 1536
WINDOW_TOKENS, N_WINDOWS = 192, 6      # a batch, over both processes
LATE_WINDOW_TOKENS, LATE_FROM = 256, 0.55  # longer windows for the last part of the run
PEAK_RATE, WARM_UP_STEPS, FINAL_SHARE = 6e-3, 100, 0.02
BETA1, BETA2, CLIP_NORM = 0.9, 0.98, 1.0
BALANCE_STEP = 2e-3
CHUNK = 1 << 16                        # elements a process updates at a time; multiple of 64
SCORED_TOKENS = 256                    # window of the held-out measure

_PTR, _LONG = ctypes.c_void_p, ctypes.c_long


def shared_array(shape, dtype=np.float32) -> np.ndarray:
    """Zeros that forked processes share."""
    n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(mmap.mmap(-1, max(n_bytes, 1)), dtype).reshape(shape)


class Shared:
    """Everything the processes share; made before they are forked."""

    def __init__(self, layout: Layout):
        n, g = layout.size, layout.geometry
        self.master, self.copy, self.m, self.v = (shared_array(n) for _ in range(4))
        self.grads = [shared_array(n) for _ in range(N_PROCESSES)]
        self.loads = shared_array((N_PROCESSES, g.n_layers, g.n_experts))
        self.worst_load = shared_array(g.n_layers)  # largest max/mean since the last report
        self.loss = shared_array(N_PROCESSES, np.float64)
        self.square = shared_array(N_PROCESSES, np.float64)
        self.score = shared_array(4, np.float64)
        self.clock = shared_array(1, np.float64)  # elapsed share of the run, set by process 0
        self.barrier = multiprocessing.Barrier(N_PROCESSES)


class Batches:
    """Windows of the training text, a new random phase and order each epoch.

    Every process draws the same sequence and takes its own part of each batch.
    """

    def __init__(self, ids: np.ndarray, seed: int):
        self.ids, self.rng, self.n_epochs = ids, np.random.default_rng(seed), 0
        self.queue, self.window = np.zeros(0, np.int64), 0

    def next(self, n_windows: int, window: int) -> np.ndarray:
        """[n_windows, window + 1] token ids."""
        if window != self.window or len(self.queue) < n_windows:
            phase = self.rng.integers(window)
            starts = np.arange(phase, len(self.ids) - window - 1, window)
            self.queue, self.window = self.rng.permutation(starts), window
            self.n_epochs += 1
        at, self.queue = self.queue[:n_windows], self.queue[n_windows:]
        return np.stack([self.ids[a : a + window + 1] for a in at])


def schedule(share: float, step: int) -> float:
    """Learning rate at elapsed share 0..1 of the run."""
    cosine = FINAL_SHARE + (1 - FINAL_SHARE) * 0.5 * (1 + math.cos(math.pi * min(share, 1)))
    return PEAK_RATE * cosine * min(1, (step + 1) / WARM_UP_STEPS)


def shared_keep(share: float) -> float:
    """Probability of keeping the shared experts: a half until 45 %, one from 65 % of the run."""
    return min(1.0, max(0.5, 0.5 + 0.5 * (share - 0.45) / 0.2))


def bits_per_byte(model: Model, ids: np.ndarray, n_bytes: np.ndarray, mode: Mode,
                  every: int) -> float:
    """Of windows of SCORED_TOKENS tokens from zero state (every `every`-th window).

    The first token of a window is not scored and its bytes are not counted.
    """
    nats, total = 0.0, 0
    starts = list(range(0, len(ids) - 1, SCORED_TOKENS))[::every]
    full = [s for s in starts if s + SCORED_TOKENS <= len(ids)]
    groups = [full[i : i + 4] for i in range(0, len(full), 4)]
    groups += [[s] for s in starts if s + SCORED_TOKENS > len(ids)]
    with torch.no_grad():
        for group in groups:
            window = torch.from_numpy(np.stack([ids[s : s + SCORED_TOKENS] for s in group]))
            nats += float(model.loss(window[:, :-1].contiguous(), window[:, 1:], mode))
            total += sum(int(n_bytes[s + 1 : s + SCORED_TOKENS].sum()) for s in group)
    return nats / math.log(2) / total


class Worker:
    """One of the processes."""

    def __init__(self, rank, layout, shared, train_ids, held_ids, held_bytes, args):
        torch.set_num_threads(1)
        self.rank, self.layout, self.s, self.args = rank, layout, shared, args
        self.held_ids, self.held_bytes = held_ids, held_bytes
        self.model = Model(layout, torch.from_numpy(shared.copy),
                           torch.from_numpy(shared.grads[rank]), seed=args.seed + rank)
        self.batches = Batches(train_ids, args.seed)
        spans = []
        for p in layout.params:
            if p.rate == 0:
                continue
            for at in range(0, p.size, CHUNK):
                spans.append((p, p.offset + at, min(CHUNK, p.size - at)))
        self.spans = spans[rank::N_PROCESSES]
        self.loads = torch.from_numpy(shared.loads[rank])

    def run(self) -> None:
        args, s = self.args, self.s
        begin, budget = time.time(), args.minutes * 60
        next_save, next_score = args.save_every, min(60.0, budget / 4)
        mean_loss, report_at, step = None, time.time(), 0
        while True:
            if self.rank == 0:
                s.clock[0] = (time.time() - begin) / budget
            s.barrier.wait()
            share = float(s.clock[0])
            if share >= 1:
                break
            loss = self.step(step, share)
            mean_loss = loss if mean_loss is None else 0.98 * mean_loss + 0.02 * loss
            step += 1
            if self.rank == 0 and (step % 50 == 0):
                now = time.time()
                worst = s.worst_load[1:]
                print(f"step {step} s {now - begin:.0f} epoch {self.batches.n_epochs} "
                      f"loss {mean_loss:.4f} norm {math.sqrt(s.square.sum()):.2f} "
                      f"rate {schedule(share, step):.2e} load worst {worst.max():.2f} "
                      f"mean {worst.mean():.2f} step/s {50 / (now - report_at):.2f}", flush=True)
                report_at = now
                s.worst_load[:] = 0
            if share * budget >= next_score:
                self.score(share, every=4)
                next_score = share * budget + args.score_every
            if share * budget >= next_save:
                self.save(step)
                next_save = share * budget + args.save_every
        self.save(step)
        self.score(1.0, every=1)

    def step(self, step: int, share: float) -> float:
        """One optimiser step; the batch's mean loss in nats per token."""
        args, s = self.args, self.s
        window = LATE_WINDOW_TOKENS if share >= LATE_FROM else WINDOW_TOKENS
        batch = self.batches.next(N_WINDOWS, window)
        mine = torch.from_numpy(batch[self.rank :: N_PROCESSES])
        self.loads.zero_()
        mode = Mode(shared_keep=shared_keep(share), dropout=args.dropout, loads=self.loads)
        loss = self.model.loss(mine[:, :-1].contiguous(), mine[:, 1:], mode)
        (loss * (1.0 / (N_WINDOWS * window))).backward()
        self.model.embedding_backward()
        s.loss[self.rank] = float(loss)
        s.barrier.wait()
        s.square[self.rank] = self._add_gradients()
        s.barrier.wait()
        self._update(step, share)
        return float(s.loss.sum()) / (N_WINDOWS * window)

    def _add_gradients(self) -> float:
        first, second = self.s.grads
        total = 0.0
        for _, at, n in self.spans:
            total += library().add_gradients(
                first[at:].ctypes.data_as(_PTR), second[at:].ctypes.data_as(_PTR),
                _LONG(n))
        return total

    def _update(self, step: int, share: float) -> None:
        s = self.s
        scale = min(1.0, CLIP_NORM / (math.sqrt(float(s.square.sum())) + 1e-12))
        rate = schedule(share, step)
        c1, c2 = 1 / (1 - BETA1 ** (step + 1)), 1 / (1 - BETA2 ** (step + 1))
        for p, at, n in self.spans:
            arrays = [a[at:].ctypes.data_as(_PTR)
                      for a in (s.master, s.copy, s.m, s.v, s.grads[0])]
            library().adamw(*arrays, _LONG(n), p.kind, f32(scale), f32(rate * p.rate),
                            f32(self.args.decay if p.decay else 0.0), f32(BETA1), f32(BETA2),
                            f32(c1), f32(c2))
        if self.rank == 0:
            self._balance(share)

    def _balance(self, share: float) -> None:
        """Moves the router biases towards equal load, less and less as the run goes on."""
        loads = self.s.loads.sum(0)
        for layer in range(1, self.layout.geometry.n_layers):
            p = self.layout.by_name[f"{layer}.router_bias"]
            load, mean = loads[layer], loads[layer].mean()
            bias = self.s.master[p.offset : p.offset + p.size]
            bias += BALANCE_STEP * (1 - share) * np.sign(mean - load)
            bias -= bias.mean()
            self.s.copy[p.offset : p.offset + p.size] = bias
            self.s.worst_load[layer] = max(self.s.worst_load[layer], load.max() / mean)

    def score(self, share: float, every: int) -> None:
        """Held-out bits per byte (a) as is, (b) without routed experts, (c) with random picks."""
        self.s.barrier.wait()
        modes = [(0, 0, Mode()), (1, 1, Mode(without_routed=True)), (2, 1, Mode(random_picks=True))]
        for slot, rank, mode in modes:
            if rank == self.rank:
                self.s.score[slot] = bits_per_byte(self.model, self.held_ids, self.held_bytes,
                                                   mode, every)
        self.s.barrier.wait()
        if self.rank == 0:
            a, b, c = self.s.score[:3]
            print(f"held out at {share:.3f} ({'all' if every == 1 else 'quarter'}): "
                  f"a {a:.4f} b {b:.4f} c {c:.4f}  routed worth {b - a:.4f} "
                  f"picks worth {c - a:.4f}", flush=True)

    def save(self, step: int) -> None:
        if self.rank == 0:
            path = os.path.join(self.args.run, "state.npz")
            with open(path + ".part", "wb") as out:
                np.savez(out, master=self.s.master, m=self.s.m, v=self.s.v, step=step)
            os.replace(path + ".part", path)
            print(f"saved {path} after {step} steps", flush=True)
        self.s.barrier.wait()


def worker(rank, *rest) -> None:
    Worker(rank, *rest).run()


def prepare(args):
    """Tokenizer, token ids of the training text, ids and bytes per token of the held-out text."""
    train, held_out = corpus.split_held_out(corpus.read_chapters())
    text, held = "".join(train), "".join(held_out)
    tokens = bpe.learn(text, N_RANKS)
    bpe.write_tiktoken(os.path.join(args.run, "tiktoken.model"), tokens)
    tokenizer = bpe.Tokenizer(tokens)
    train_ids = np.array(tokenizer.encode(text), np.int64)
    held_ids = np.array(tokenizer.encode(held), np.int64)
    held_bytes = np.array([len(tokens[i]) for i in held_ids], np.int64)
    print(f"text: {len(text)} bytes, {len(train_ids)} tokens to train; "
          f"{len(held)} bytes, {len(held_ids)} tokens held out", flush=True)
    return train_ids, held_ids, held_bytes


def start_weights(layout: Layout, shared: Shared, args) -> None:
    if args.resume:
        saved = np.load(args.resume)
        shared.master[:], shared.m[:], shared.v[:] = saved["master"], saved["m"], saved["v"]
    else:
        shared.master[:] = initial_weights(layout, args.seed)
    for p in layout.params:
        at = p.offset
        library().round_weights(shared.master[at:].ctypes.data_as(_PTR), _LONG(p.size), p.kind,
                                shared.copy[at:].ctypes.data_as(_PTR))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, required=True, help="length of the run")
    parser.add_argument("--run", required=True, help="folder for state and tokenizer")
    parser.add_argument("--resume", help="state.npz to start from (weights and moments)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--decay", type=float, default=0.15, help="weight decay")
    parser.add_argument("--dropout", type=float, default=0.0, help="on mixer outputs")
    parser.add_argument("--save-every", type=float, default=240, help="seconds")
    parser.add_argument("--score-every", type=float, default=180, help="seconds")
    args = parser.parse_args()
    os.makedirs(args.run, exist_ok=True)
    layout = Layout(Geometry())
    data = prepare(args)
    shared = Shared(layout)
    start_weights(layout, shared, args)
    jobs = [multiprocessing.Process(target=worker, args=(r, layout, shared, *data, args))
            for r in range(N_PROCESSES)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    return max(job.exitcode or 0 for job in jobs)


if __name__ == "__main__":
    sys.exit(main())
