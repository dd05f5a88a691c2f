from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap

from optc.system.processes.child_process import child_command, child_environment


def test_a_module_runs_with_its_arguments() -> None:
    command = child_command("tests.support.children.echo_child", "a", "b c")
    done = subprocess.run(command, env=child_environment(), check=False, stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (3, b"__main__ a|b c\n")


def test_a_child_ends_when_its_parent_is_killed() -> None:
    """The child holds the writing end of a pipe: its end is the end of the child."""
    script = textwrap.dedent(
        """
        import subprocess, sys
        from optc.system.processes.child_process import child_command, child_environment
        command = child_command("tests.support.children.echo_child", "--wait")
        child = subprocess.Popen(command, env=child_environment(), stdin=subprocess.PIPE)
        child.wait()
        """
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], env=child_environment(), stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"__main__ --wait\n"
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    ready, _, _ = select.select([parent.stdout], [], [], 60)
    assert ready, "the child lives on"
    assert parent.stdout.read() == b""
    parent.stdout.close()


def test_a_child_whose_parent_is_gone_before_it_begins_does_nothing() -> None:
    command = child_command("tests.support.children.echo_child")
    command[command.index(str(os.getpid()))] = str(2**22 + 1)  # above all process numbers
    done = subprocess.run(command, env=child_environment(), check=False, stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (1, b"")
