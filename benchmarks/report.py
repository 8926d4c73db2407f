"""How long a report takes, and how large its page is: the translation model, then many ops.

    python -m benchmarks.report                        # 150 tokens, then 25000 and 100000 ops
    python -m benchmarks.report --ops=1000 --nomodel --profile

Planning is not counted: it is done before a report is asked for. Seconds are those of this process,
so that others hardly matter.
"""

from __future__ import annotations

import cProfile
import pstats
import time

from absl import app, flags

from benchmarks.planning import encoded, made_up
from rnnmem.analysis.machine import CPU
from rnnmem.analysis.shapes import filled, known_net
from rnnmem.ir.graph import Net
from rnnmem.planning.apply import apply_plan
from rnnmem.planning.pareto import plan_net
from rnnmem.reports.kinds import Kinds
from rnnmem.reports.moments import side
from rnnmem.reports.report import Report
from rnnmem.reports.stepnets import graphs
from rnnmem.simulate.timeline import record
from rnnmem.tf.gc import paused

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the knobs."""
    flags.DEFINE_list("ops", ["25000", "100000"], "sizes of made-up functions")
    flags.DEFINE_integer("loops", 50, "loop pairs of a made-up function", lower_bound=1)
    flags.DEFINE_bool("model", True, "report on the translation model's step too")
    flags.DEFINE_integer("length", 150, "tokens of that step")
    flags.DEFINE_bool("profile", False, "print where the time goes")


def report_of(net: Net, rewritten: Net, plan) -> Report:
    """The report on a Net, made as ``rnnmem.report`` makes it."""
    with paused():
        before, after = known_net(net), known_net(rewritten)
        original, final = filled(before), filled(after)
        weights = frozenset({("float32", (64, 64))})
        return Report(
            "made_up",
            side("before", record(before), Kinds(original, original, plan, weights)),
            side("after", record(after), Kinds(final, original, plan, weights)),
            plan,
            graphs=graphs(original, final, plan),
        )


def _told(name: str, make) -> None:
    profiler = cProfile.Profile()
    start = time.process_time()
    if FLAGS.profile:
        profiler.enable()
    made = make()
    profiler.disable()
    seconds = time.process_time() - start
    start = time.process_time()
    page = made.to_html()
    print(
        f"{name}: report {seconds:.2f} s, page {time.process_time() - start:.2f} s and "
        f"{len(page) / 1e6:.2f} MB, {len(str(made).splitlines())} lines of text",
        flush=True,
    )
    if FLAGS.profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def _model() -> None:
    import tensorflow as tf

    import rnnmem
    from models.nmt.benchmark import build

    step, arguments = build(32, FLAGS.length, FLAGS.length)
    optimised = rnnmem.optimize(tf.function(step))
    optimised.plan(*arguments)
    _told(
        f"translation step, {FLAGS.length} tokens",
        lambda: rnnmem.report(optimised, *arguments, measure=False),
    )


def main(_) -> None:
    """Prints a line for each function."""
    if FLAGS.model:
        _model()
    for ops in map(int, FLAGS.ops):
        net = made_up(ops, FLAGS.loops)
        with paused():
            plan = plan_net(filled(known_net(net)), CPU, 1.1)
            rewritten = apply_plan(net, plan, encoded)
        _told(f"{net.op_count} ops", lambda net=net, r=rewritten, p=plan: report_of(net, r, p))


if __name__ == "__main__":
    define_flags()
    app.run(main)
