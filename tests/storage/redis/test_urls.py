"""Redis URLs: what they say, and that a bad one is refused without showing what is in it."""

from __future__ import annotations

import pytest

from windlass._storage.redis.io.url import RedisNode, RedisTopology, parse_url
from windlass.errors import ConfigError


def test_a_server_is_host_port_and_database() -> None:
    url = parse_url("redis://queue.example:6400/3")
    assert (url.place, url.nodes, url.database) == (
        RedisTopology.SERVER,
        (RedisNode("queue.example", 6400),),
        3,
    )
    assert url.tls is None


def test_the_port_may_be_left_out() -> None:
    assert parse_url("redis://h").nodes == (RedisNode("h", 6379),)
    assert parse_url("redis+sentinel://h/main").nodes == (RedisNode("h", 26379),)


def test_user_and_password_are_unquoted() -> None:
    url = parse_url("redis://us%40er:p%2Fs%3As@h")
    assert (url.username, url.password) == ("us@er", "p/s:s")
    assert parse_url("redis://:secret@h").username is None


def test_tls_takes_the_options_of_the_driver() -> None:
    url = parse_url("rediss://h?ssl_ca_certs=/etc/ca.pem&ssl_check_hostname=false")
    assert url.tls == {"ssl_ca_certs": "/etc/ca.pem", "ssl_check_hostname": False}
    assert parse_url("rediss://h?ssl_cert_reqs=none").tls == {
        "ssl_cert_reqs": "none",
        "ssl_check_hostname": False,
    }


def test_a_socket_is_a_path() -> None:
    url = parse_url("unix://:secret@/run/my%20valkey.sock?db=2")
    assert (url.place, url.path, url.database) == (RedisTopology.SOCKET, "/run/my valkey.sock", 2)
    assert url.password == "secret"


def test_sentinel_is_hosts_a_service_and_a_database() -> None:
    url = parse_url("redis+sentinel://:pw@a:1,b,[::1]:3/main/2?sentinel_password=other")
    assert url.place is RedisTopology.SENTINEL
    assert url.nodes == (RedisNode("a", 1), RedisNode("b", 26379), RedisNode("::1", 3))
    assert (url.service, url.database) == ("main", 2)
    assert (url.password, url.sentinel_password) == ("pw", "other")


def test_a_cluster_is_hosts() -> None:
    url = parse_url("rediss+cluster://a,b:7001")
    assert url.place is RedisTopology.CLUSTER
    assert url.nodes == (RedisNode("a", 6379), RedisNode("b", 7001))
    assert url.tls == {}


def test_printed_urls_have_no_secrets() -> None:
    url = parse_url("redis+sentinel://user:s3cret@a:1/main/2?sentinel_password=s3cret")
    assert f"{url} {url!r}" == "Sentinel a:1/main, database 2 <Sentinel a:1/main, database 2>"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("user:s3cret@host", "no Redis URL"),
        ("rdis://:s3cret@host", "Did you mean 'redis'"),
        ("redis://", "a host is missing"),
        ("redis://:s3cret@host:99999", "a port"),
        ("redis://:s3cret@host:s3cret", "a port"),
        ("redis://:s3cret@host/s3cret", "database number"),
        ("redis://:s3cret@host/1/2", "too many slashes"),
        ("redis://:p/s3cret@host", "a host is missing"),
        ("redis://:p?s3cret@host", "unknown option"),
        ("redis://:pw@host?s3cret=1", "unknown option"),
        ("redis://:pw@host?ssl_ca_certs=s3cret", "unknown option"),
        ("redis://:pw@host#s3cret", "a #"),
        ("redis://s3cret@host", "one word before the @"),
        ("redis://:s3cret@a,b", "several servers"),
        ("redis://:s3cret@[::1", "IPv6"),
        ("redis://:s3cret@[::1]x:1", "between ]"),
        ("unix://s3cret/run/socket", "third slash"),
        ("unix:///", "no socket"),
        ("redis+sentinel://:s3cret@a", "name of the service"),
        ("redis+cluster://:s3cret@a/1", "only database 0"),
        ("rediss://:s3cret@h?ssl_cert_reqs=s3cret", "ssl_cert_reqs is"),
        ("rediss://:s3cret@h?ssl_check_hostname=s3cret", "ssl_check_hostname is"),
    ],
)
def test_a_bad_url_is_refused_with_the_reason_and_without_its_password(url: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_url(url)
    assert why in str(caught.value)
    assert "s3cret" not in str(caught.value)
