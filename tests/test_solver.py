"""HiGHS is quiet: what it prints from C is dropped, and nothing that anybody else writes."""

import ctypes
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from scipy import optimize

from rnnmem.solver import milp

LIBC = ctypes.CDLL(None)
REMARK = b"HighsMipSolverData::transformNewIntegerFeasibleSolution tmpSolver.run();\n"


def knapsack():
    return {
        "c": -np.array([3.0, 2.0]),
        "integrality": np.ones(2),
        "bounds": optimize.Bounds(0, 1),
        "constraints": [(np.array([[2.0, 1.0]]), -np.inf, 2.0)],
    }


@pytest.fixture
def talkative(monkeypatch):
    """A solver that prints a remark, as HiGHS does, through C's own buffer."""
    solve = optimize.milp

    def loud(*args, **kwargs):
        LIBC.printf(REMARK)
        return solve(*args, **kwargs)

    monkeypatch.setattr(optimize, "milp", loud)


def test_the_solution_is_that_of_scipy():
    np.testing.assert_allclose(milp(**knapsack()).x, optimize.milp(**knapsack()).x)


def test_remarks_of_the_solver_are_dropped(talkative, capfd):
    print("before", end=" ")
    assert milp(**knapsack()).status == 0
    print("after")
    LIBC.fflush(None)
    assert capfd.readouterr() == ("before after\n", "")


def test_what_others_write_meanwhile_is_let_through(monkeypatch, capfd):
    solve = optimize.milp

    def with_company(*args, **kwargs):
        other = threading.Thread(target=lambda: os.write(1, b"of another thread\n"))
        other.start()
        other.join()
        LIBC.printf(REMARK)
        return solve(*args, **kwargs)

    monkeypatch.setattr(optimize, "milp", with_company)
    milp(**knapsack())
    assert capfd.readouterr().out == "of another thread\n"


def test_an_error_leaves_the_terminal_as_it_was(talkative, capfd):
    with pytest.raises(ValueError):
        milp(c=[[1.0, 2.0], [3.0, 4.0]])
    print("still here")
    assert capfd.readouterr().out == "still here\n"


def test_without_a_standard_output_it_solves_all_the_same():
    script = (
        "import os; os.close(1)\n"
        "from rnnmem.solver import milp\n"
        "assert milp(c=[1.0], integrality=[1]).x[0] == 0\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_no_other_file_asks_scipy_for_a_solution():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found = []
    for folder, _, names in os.walk(os.path.join(root, "rnnmem")):
        for name in (name for name in names if name.endswith(".py")):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                text = file.read()
            if (
                "scipy.optimize import" in text
                and "milp" in text.split("scipy.optimize import")[1].partition("\n")[0]
            ):
                found.append(name)
    assert found == ["solver.py"]
