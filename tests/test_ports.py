import socket
from collections.abc import Iterator

import pytest

from parakeet_mps.ports import Port, check_ports, listening_ports
from parakeet_mps.settings import SettingError, Settings
from processes import free_port


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_local_triton_adds_its_ports() -> None:
    assert [port.number for port in listening_ports(Settings())] == [8002, 8001, 8000, 8003]


def test_a_remote_triton_adds_none() -> None:
    assert [port.variable for port in listening_ports(Settings(triton_url="triton:8001"))] == ["PORT"]


def test_each_role_has_the_ports_of_what_it_starts() -> None:
    assert [port.number for port in listening_ports(Settings(role="gateway"))] == [8002]
    remote = Settings(role="triton", triton_url="triton:9001")
    assert [port.number for port in listening_ports(remote)] == [9001, 8000, 8003]


def test_free_ports_are_accepted() -> None:
    check_ports([Port("PORT", "127.0.0.1", free_port())])


def test_a_port_in_use_is_refused_with_the_variable_to_set(busy_port: int) -> None:
    with pytest.raises(SettingError, match=f"port {busy_port} .* in use by another program; set TRITON_HTTP_PORT"):
        check_ports([Port("TRITON_HTTP_PORT", "0.0.0.0", busy_port)])


def test_a_port_given_twice_is_refused_with_both_variables() -> None:
    port = free_port()
    with pytest.raises(SettingError, match="PORT and TRITON_METRICS_PORT both name port"):
        check_ports([Port("PORT", "127.0.0.1", port), Port("TRITON_METRICS_PORT", "127.0.0.1", port)])


def test_one_that_listens_everywhere_takes_the_number_from_another() -> None:
    port = free_port()
    with pytest.raises(SettingError, match="PORT and TRITON_URL both name port"):
        check_ports([Port("PORT", "0.0.0.0", port), Port("TRITON_URL", "127.0.0.1", port)])


def test_a_number_may_be_used_on_two_addresses() -> None:
    port = free_port()
    check_ports([Port("PORT", "127.0.0.2", port), Port("TRITON_HTTP_PORT", "127.0.0.1", port)])


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(SettingError, match=r"HOST='192\.0\.2\.1' is no address of this machine"):
        check_ports([Port("PORT", "192.0.2.1", free_port())])
