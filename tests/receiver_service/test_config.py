"""The file of a receiver service: what it says, and errors that name file, table, key and the fix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spark_rtps.receiver_service.config import ReceiverServiceConfig, read_config
from spark_rtps.receiver_service.config_file import ReceiverFileError
from spark_rtps.transport.structure import INFINITE

TOKEN = "0123456789abcdef-read"
IDL = "struct Point { @key long id; double x; };"


@pytest.fixture
def read(tmp_path: Path) -> Callable[[str], ReceiverServiceConfig]:
    def read(text: str, *, directory: str = 'directory = "state"\n') -> ReceiverServiceConfig:
        file = tmp_path / "receiver.toml"
        file.write_text(directory + text)
        return read_config(file)

    return read


def tls(tmp_path: Path) -> str:
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (tmp_path / name).write_text(name)
    return 'certificate = "tls.crt"\nkey = "tls.key"\n'


class TestWhatItSays:
    def test_defaults(self, read: Callable[..., ReceiverServiceConfig], tmp_path: Path) -> None:
        config = read("")
        assert (config.address, config.port, config.directory) == ("127.0.0.1", 7420, tmp_path / "state")
        assert config.tokens is None and config.client_role == "commit" and not config.subscriptions
        assert config.groups_retention == 7 * 86_400 * 10**9

    def test_a_subscription(self, read: Callable[..., ReceiverServiceConfig]) -> None:
        text = """
            [defaults]
            domain = 7
            reliability = "reliable"
            [subscriptions.imu]
            topic = "rt/imu"
            reliability = "best_effort"
            history.depth = 5
            partition = ["a", "b"]
            multicast = false
        """
        (imu,) = read(text).subscriptions
        assert imu.settings.domain == 7 and imu.settings.qos.history_depth == 5
        assert imu.settings.qos.partition == ("a", "b") and not imu.settings.multicast
        assert imu.options["reliability"] == "best_effort" and imu.settings.retention == "bytes"

    def test_keys_have_any_case_and_may_be_dotted_tables(
        self, read: Callable[..., ReceiverServiceConfig]
    ) -> None:
        text = '[subscriptions.a]\ntopic = "t"\n[subscriptions.a.log]\nMAX_BYTES = "1GiB"\nsegment_bytes = 1048576\n'
        (subscription,) = read(text).subscriptions
        assert subscription.settings.log_max_bytes == 1 << 30
        assert subscription.options["log.max_bytes"] == "1GiB"

    def test_paths_are_relative_to_the_file(
        self, read: Callable[..., ReceiverServiceConfig], tmp_path: Path
    ) -> None:
        (tmp_path / "point.idl").write_text(IDL)
        (subscription,) = read('[subscriptions.a]\ntopic = "t"\ntype.file = "point.idl"\n').subscriptions
        assert subscription.settings.type_file == str(tmp_path / "point.idl")
        assert subscription.plan.type_name == "Point" and subscription.plan.keyed

    def test_the_topic_watch_is_in_the_domain_of_the_defaults(
        self, read: Callable[..., ReceiverServiceConfig]
    ) -> None:
        network = read('[defaults]\ndomain = 7\ninterface = "lo"\nretention.time = "1h"\n').network
        assert (network.domain, network.interface) == (7, "lo")

    def test_patterns_are_apart(self, read: Callable[..., ReceiverServiceConfig]) -> None:
        config = read('[subscriptions.a]\ntopic = "rt/*"\n[subscriptions.b]\ntopic = "rt/b"\n')
        assert [each.name for each in config.patterns] == ["a"]
        assert [each.name for each in config.subscriptions] == ["b"]

    def test_tokens(
        self, read: Callable[..., ReceiverServiceConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "r.token").write_text(TOKEN + "\n")
        monkeypatch.setenv("ADMIN", TOKEN + "2")
        config = read('[tokens]\nread = "r.token"\nadmin = "env:ADMIN"\n')
        assert config.tokens == {"read": TOKEN, "admin": TOKEN + "2"}
        assert TOKEN not in repr(config)

    def test_tls_and_tokens_for_other_hosts(
        self, read: Callable[..., ReceiverServiceConfig], tmp_path: Path
    ) -> None:
        (tmp_path / "r.token").write_text(TOKEN)
        config = read(f'listen = "0.0.0.0:7421"\n{tls(tmp_path)}[tokens]\nread = "r.token"\n')
        assert (config.address, config.port, config.certificate) == ("0.0.0.0", 7421, tmp_path / "tls.crt")

    def test_certificates_of_clients_for_other_hosts(
        self, read: Callable[..., ReceiverServiceConfig], tmp_path: Path
    ) -> None:
        config = read(f'listen = "0.0.0.0:7421"\n{tls(tmp_path)}client_ca = "ca.crt"\nclient_role = "read"\n')
        assert (config.client_ca, config.client_role, config.tokens) == (tmp_path / "ca.crt", "read", None)

    def test_a_certificate_that_is_renewed_under_its_name(
        self, read: Callable[..., ReceiverServiceConfig], tmp_path: Path
    ) -> None:
        before = read(tls(tmp_path)).pem_digest
        assert read("certificate = 'tls.crt'\nkey = 'tls.key'\n").pem_digest == before
        (tmp_path / "tls.crt").write_text("renewed")
        assert read("certificate = 'tls.crt'\nkey = 'tls.key'\n").pem_digest != before

    def test_groups_may_stay(self, read: Callable[..., ReceiverServiceConfig]) -> None:
        assert read('groups_retention = "infinite"\n').groups_retention == INFINITE

    def test_ended_logs(self, read: Callable[..., ReceiverServiceConfig]) -> None:
        config = read("")
        assert (config.ended_logs_retention, config.ended_logs_bytes) == (7 * 86_400 * 10**9, None)
        config = read('ended_logs_retention = "0s"\nended_logs_bytes = "2GiB"\n')
        assert (config.ended_logs_retention, config.ended_logs_bytes) == (0, 2 << 30)

    def test_the_example_of_the_documents(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        example = (Path(__file__).parents[2] / "conf" / "receiver.toml").read_text()
        credentials = "/run/credentials/spark-rtps-receiver.service"
        (tmp_path / "receiver.toml").write_text(example.replace(credentials, str(tmp_path)))
        tls(tmp_path)
        for role in ("read", "commit", "admin"):
            (tmp_path / f"{role}.token").write_text(TOKEN + role)
        config = read_config(tmp_path / "receiver.toml")
        assert [each.settings.retention for each in config.subscriptions] == ["bytes", "committed"]
        assert config.patterns[0].settings.retention_time == 86_400 * 10**9


WRONG = [
    ('listn = "127.0.0.1:1"', "", "listn", "did you mean 'listen'"),
    ('listen = "[::]:7420"', "", "listen", "IPv4 address and a port"),
    ('listen = "127.0.0.1:70000"', "", "listen", "IPv4 address and a port"),
    ('listen = "0.0.0.0:7420"', "", "listen", "set certificate and key (TLS), and [tokens] or client_ca"),
    ('certificate = "x"', "", "certificate", "cannot be read"),
    ('certificate = "receiver.toml"', "", "certificate", "set key too"),
    ('key = "receiver.toml"', "", "key", "set certificate too"),
    ('client_ca = "receiver.toml"', "", "client_ca", "set certificate too"),
    ('client_role = "read"', "", "client_role", "set client_ca too"),
    ('groups_retention = "soon"', "", "groups_retention", "must be a duration"),
    ('groups_retention = "1ms"', "", "groups_retention", "at least 1s"),
    ("groups_retention = 7", "", "groups_retention", "must be a text in quotes"),
    ('ended_logs_retention = "soon"', "", "ended_logs_retention", "a duration of at least 0s"),
    ('ended_logs_bytes = "much"', "", "ended_logs_bytes", "a size such as 512MiB or 10GiB, or unlimited"),
    ('tokens = "x"', "", "tokens", "must be a table"),
    ("[tokens]", "tokens", "", "is empty"),
    ('[tokens]\nreed = "x"', "tokens", "reed", "did you mean 'read'"),
    ('[tokens]\nread = "nowhere"', "tokens", "read", "write a path, or env:NAME"),
    ('[tokens]\nread = "env:NOT_THERE"', "tokens", "read", "the environment has no NOT_THERE"),
    ('[tokens]\nread = "short"', "tokens", "read", "16 or more"),
    ('[defaults]\nreliabilty = "x"', "defaults", "reliabilty", "did you mean 'reliability'"),
    ('[defaults]\nreliability = "x"\n[subscriptions.a]\ntopic = "t"', "defaults", "reliability", "'x' must be one of"),
    ('[defaults]\ndomain = 300', "defaults", "domain", "'300' must be between 0 and 232"),
    ('[subscriptions.a]\ntopic = "t"\nreliability = "x"', "subscriptions.a", "reliability", "must be one of"),
    ('[subscriptions.a]\ntopic = "t"\nhistory.dept = 5', "subscriptions.a", "history.dept", "'history.depth'"),
    ('[subscriptions.a]\ntopic = "t"\ndepth = 5', "subscriptions.a", "depth", "did you mean 'history.depth'"),
    ('[subscriptions.a]\nreliability = "reliable"', "subscriptions.a", "topic", "is missing"),
    ('[subscriptions.a]\ntopic = "t"\nsubscribe = ["u", "v"]', "subscriptions.a", "subscribe", "only one of the"),
    ('[subscriptions.a]\nsubscribePattern = "*"', "subscriptions.a", "subscribePattern", "no regular expression"),
    ('[subscriptions.a]\nsubscribePattern = ".*"\nspy = true', "subscriptions.a", "subscribePattern", "spy=true"),
    ('[subscriptions.a]\nsubscribe = "t,u"\nfilter = "x > 1"', "subscriptions.a", "filter", "set type.file"),
    ('[subscriptions]\na = "t"', "subscriptions", "a", "must be a table"),
    ('[subscriptions."../a"]\ntopic = "t"', "subscriptions.../a", "", "no `..`"),
    ('[subscriptions."a/../b"]\ntopic = "t"', "subscriptions.a/../b", "", "no `..`"),
    ('[subscriptions.a]\ntopic = "t"\nlog.dir = "x"', "subscriptions.a", "log.dir", "decided by `directory`"),
    ('[subscriptions.a]\ntopic = "t"\npayload = "binary"', "subscriptions.a", "payload", "of the queries"),
    ('[subscriptions.a]\ntopic = "t"\nstatuses = true', "subscriptions.a", "statuses", "of the queries"),
    ('[subscriptions.a]\ntopic = "t"\nserve.port = 1', "subscriptions.a", "serve.port", "of the queries"),
    ('[subscriptions.a]\ntopic = "t"\nmax_batches = 1', "subscriptions.a", "max_batches", "only to writing"),
    ('[subscriptions.a]\ntopic = "t"\nretention = "time"', "subscriptions.a", "retention", "needs retention.time"),
    ('[subscriptions.a]\ntopic = "t"\nfilter = "x > 1"', "subscriptions.a", "filter", "set type.file"),
    ('[subscriptions.a]\ntopic = "t*"\nfilter = "x > 1"', "subscriptions.a", "filter", "topics of a pattern"),
    ('[subscriptions.a]\ntopic = "t*"\nspy = true', "subscriptions.a", "spy", "name the topic"),
    ('[subscriptions.a]\ntopic = "t"\ntype.file = "x.idl"', "subscriptions.a", "type.file", "x.idl"),
    ('[subscriptions.a]\ntopic = "t"\npartition = ["a,b"]', "subscriptions.a", "partition", "without commas"),
    ('[subscriptions.a]\ntopic = "t"\ndeadline = 07:32:00', "subscriptions.a", "deadline", "must be in quotes"),
    ('[subscriptions.a]\ntopic = "t"\ndomain = 1\nDOMAIN = 2', "subscriptions.a", "DOMAIN", "set twice"),
    ('[subscriptions.a]\nhistory = "keep_last"\nhistory.depth = 5', "", "", "quote the longer one"),
    ("directory =", "", "", "is not TOML"),
    (f"x = {'[' * 5000}{']' * 5000}", "", "", "is nested too deeply"),
    (f"[subscriptions.a]\ntopic = 't'\n{'a.' * 1500}b = 1", "", "", "is nested too deeply"),
    (f"[subscriptions.a]\ntopic = 't'\ndomain = {'9' * 5000}", "", "", "is not TOML"),
    (f"[subscriptions.a]\ntopic = 't'\ndomain = 0x{'f' * 5000}", "subscriptions.a", "domain", "must be a text"),
    ('[subscriptions.a]\ntopic = "t"\ntype.file = "~nobody-here/x.idl"', "subscriptions.a", "type.file", "home dir"),
    ('[defaults]\nqos.file = "~nobody-here/x.xml"', "defaults", "qos.file", "home directory"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "table", "key", "fix"), WRONG, ids=[each[0][:40] for each in WRONG])
def test_errors_name_the_place_and_the_fix(
    read: Callable[..., ReceiverServiceConfig],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    table: str,
    key: str,
    fix: str,
) -> None:
    (tmp_path / "short").write_text("short")
    monkeypatch.delenv("NOT_THERE", raising=False)
    with pytest.raises(ReceiverFileError) as error:
        read(text + "\n")
    assert (error.value.table, error.value.key) == (table, key)
    assert str(error.value).startswith(f"{tmp_path}/receiver.toml: ") and fix in str(error.value)


def test_a_certificate_that_goes_while_the_file_is_read(
    read: Callable[..., ReceiverServiceConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a renewal replaces it."""
    text = tls(tmp_path)
    read_bytes = Path.read_bytes

    def gone(path: Path) -> bytes:
        if path.name == "tls.crt":
            raise FileNotFoundError(2, "No such file or directory")
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", gone)
    with pytest.raises(ReceiverFileError, match=r"certificate: .*tls\.crt cannot be read: No such file"):
        read(text)


def test_the_directory_has_no_default(read: Callable[..., ReceiverServiceConfig]) -> None:
    with pytest.raises(ReceiverFileError, match="directory: is missing"):
        read("", directory="")


def test_roles_have_tokens_of_their_own(read: Callable[..., ReceiverServiceConfig], tmp_path: Path) -> None:
    (tmp_path / "one").write_text(TOKEN)
    with pytest.raises(ReceiverFileError, match="token of admin too") as error:
        read('[tokens]\nread = "one"\nadmin = "one"\n')
    assert TOKEN not in str(error.value)


def test_a_token_in_the_file_itself_is_not_repeated(read: Callable[..., ReceiverServiceConfig]) -> None:
    with pytest.raises(ReceiverFileError, match="write a path") as error:
        read(f'[tokens]\nread = "{TOKEN}"\n')
    assert TOKEN not in str(error.value)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ReceiverFileError, match="No such file"):
        read_config(tmp_path / "none.toml")
