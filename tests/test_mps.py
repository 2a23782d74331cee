import os
import signal
from pathlib import Path

import pytest

import fake_mps
from parakeet_mps.mps import CONTROL, MOST_PIPE_PATH, MpsDaemon, MpsError
from processes import runs


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return fake_mps.install(tmp_path / "bin")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "mps"


def test_the_daemon_runs_for_the_length_of_the_block_and_is_told_to_quit(folder: Path, environ: dict[str, str]) -> None:
    with MpsDaemon(folder, "GPU-1", environ) as daemon:
        pid = daemon.pid
        assert pid is not None
        assert runs(pid)
    assert daemon.pid is None
    assert not runs(pid)
    assert (folder / "log/commands").read_text().split() == ["get_server_list", "quit"]


def test_it_stops_when_the_block_fails(folder: Path, environ: dict[str, str]) -> None:
    daemon = MpsDaemon(folder, "GPU-1", environ)
    with pytest.raises(ZeroDivisionError), daemon:
        _ = 1 / 0
    assert daemon.pid is None


def test_daemon_and_clients_share_folders_and_name_the_gpu_by_uuid(folder: Path, environ: dict[str, str]) -> None:
    with MpsDaemon(folder, "GPU-1", environ) as daemon:
        seen = dict(line.split("=", 1) for line in (folder / "log/environ").read_text().splitlines())
        assert seen == daemon.client_environ()
    assert seen["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert seen["CUDA_MPS_PIPE_DIRECTORY"] == str(folder / "pipe")


def test_a_control_command_returns_its_answer(folder: Path, environ: dict[str, str]) -> None:
    with MpsDaemon(folder, "GPU-1", environ) as daemon:
        assert daemon.command("get_server_list") == "4711"
        with pytest.raises(MpsError, match="Unrecognized command"):
            daemon.command("dance")
        assert daemon.log_tail() == "control started"


def test_a_daemon_that_does_not_start_is_an_error_with_its_words(folder: Path, environ: dict[str, str]) -> None:
    with pytest.raises(MpsError, match="already running"):
        MpsDaemon(folder, "GPU-1", {**environ, "FAKE_FAILS": "1"}).start()


def test_a_daemon_that_cannot_be_reached_is_an_error(folder: Path, environ: dict[str, str]) -> None:
    with pytest.raises(MpsError, match="Cannot find MPS control daemon"):
        MpsDaemon(folder, "GPU-1", {**environ, "FAKE_UNREACHABLE": "1"}).start()


def test_a_daemon_left_over_from_a_killed_service_is_replaced(folder: Path, environ: dict[str, str]) -> None:
    leftover = MpsDaemon(folder, "GPU-1", environ)
    leftover.start()
    old = leftover.pid
    assert old is not None
    with MpsDaemon(folder, "GPU-1", environ) as daemon:
        assert daemon.pid != old
        assert not runs(old)


def test_a_process_that_got_the_number_of_a_daemon_long_gone_is_left_alone(
    folder: Path, environ: dict[str, str]
) -> None:
    (folder / "pipe").mkdir(parents=True)
    (folder / f"pipe/{CONTROL}.pid").write_text(str(os.getpid()))
    with MpsDaemon(folder, "GPU-1", environ, stop_timeout_s=0.2) as daemon:
        assert daemon.pid not in (None, os.getpid())


def test_a_daemon_that_ignores_quit_is_killed(folder: Path, environ: dict[str, str]) -> None:
    daemon = MpsDaemon(folder, "GPU-1", {**environ, "FAKE_STUBBORN": "1"}, stop_timeout_s=0.2)
    daemon.start()
    pid = daemon.pid
    assert pid is not None
    daemon.stop()
    assert not runs(pid)


def test_all_clients_of_the_servers_are_let_go(folder: Path, environ: dict[str, str]) -> None:
    with MpsDaemon(folder, "GPU-1", environ) as daemon:
        daemon.terminate_clients()
        commands = (folder / "log/commands").read_text().splitlines()
    assert commands[-2:] == ["terminate_client 4711 12", "terminate_client 4711 34"]


def test_clients_that_are_not_let_go_are_logged(
    folder: Path, environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", logger="supervisor")
    daemon = MpsDaemon(folder, "GPU-1", {**environ, "FAKE_STUBBORN": "1"}, stop_timeout_s=0.2)
    with daemon:
        daemon.terminate_clients()
    assert "does not let go of client 12" in caplog.text
    assert "does not let go of client 34" in caplog.text
    assert "Failed to terminate" in caplog.text


def test_no_server_of_a_daemon_that_was_killed_is_left(folder: Path, environ: dict[str, str]) -> None:
    with MpsDaemon(folder, "GPU-1", environ) as daemon:
        while not (pidfile := folder / "log/server.pid").exists() or not pidfile.read_text():
            pass
        server = int(pidfile.read_text())
        os.kill(daemon.pid or 0, signal.SIGKILL)
        assert runs(server)
    assert not runs(server)


def test_a_dead_daemon_is_seen(folder: Path, environ: dict[str, str]) -> None:
    with MpsDaemon(folder, "GPU-1", environ) as daemon:
        assert daemon.pid is not None
        os.kill(daemon.pid, signal.SIGKILL)
        while daemon.pid is not None:
            pass


def test_a_run_folder_too_deep_for_unix_sockets_is_refused(tmp_path: Path, environ: dict[str, str]) -> None:
    with pytest.raises(MpsError, match="RUN_DIR"):
        MpsDaemon(tmp_path / ("x" * MOST_PIPE_PATH), "GPU-1", environ).start()


def test_a_missing_control_program_is_an_error(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(MpsError, match="nvidia-cuda-mps-control"):
        MpsDaemon(folder, "GPU-1", {"PATH": str(tmp_path)}).start()
