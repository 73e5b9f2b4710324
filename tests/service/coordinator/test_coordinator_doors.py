"""Who gets in, and what is asked of them: keys, questions, figures, and the options of `serve`."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from coordinator_support import TRANSFERS, Local, adapter
from safetensors.numpy import save
from service.coordinator.conftest import Start

from mingora_common.proxies import networks
from mingora_coordinator import cli
from mingora_coordinator.server import OnlyFrom, Serve
from mingora_coordinator.store.keys import Keys
from mingora_stack.tls import Authority

KEY = "a-key-that-is-shared-by-all"
REFUSED = (401, {"hata": "yetkisiz"})


def get(coordinator: Local, path: str, key: str | None = None) -> tuple[int, Any]:
    answer = coordinator.client.get(path, headers={} if key is None else {"X-Anahtar": key})
    return answer.status_code, answer.get_json(silent=True)


@pytest.mark.req("COORD-4")
def test_without_the_key_only_bilgi_is_open(start: Start) -> None:
    coordinator = start(key=KEY)
    assert coordinator.get("/bilgi")["anahtar_gerekli"] is True
    rules = {
        rule.rule: rule for rule in coordinator.client.application.url_map.iter_rules()
    }  # a new route can't escape
    open_to_all = {"/bilgi", "/healthz", "/readyz"}
    assert open_to_all < rules.keys()
    for path, rule in rules.items():
        for method in (rule.methods or set()) - {"OPTIONS", "HEAD"}:
            for headers in ({}, {"X-Anahtar": KEY[:-1]}, {"X-Anahtar": ""}, {"Authorization": f"Bearer {KEY}x"}):
                answer = coordinator.client.open(path.replace("<name>", "x"), method=method, headers=headers)
                if path in open_to_all:
                    assert answer.status_code == 200
                else:
                    assert (answer.status_code, answer.get_json()) == REFUSED, (method, path)
    assert get(coordinator, "/durum", KEY)[0] == 200
    assert coordinator.send("ali", 0, adapter(), **{"X-Anahtar": KEY})[0] == 200
    assert coordinator.send("veli", 0, b"x" * 10_000_000) == REFUSED  # before 413
    assert get(coordinator, "/yok")[0] == 401


@pytest.mark.req("COORD-4", "COORD-6")
def test_a_browser_and_prometheus_show_the_key_in_their_own_way(start: Start) -> None:
    client = start(key=KEY).client
    challenge = client.get("/metrics")
    assert challenge.headers["WWW-Authenticate"].startswith("Basic ")
    basic = base64.b64encode(f"anyone:{KEY}".encode()).decode()
    for authorization in (f"Basic {basic}", f"Bearer {KEY}"):
        answer = client.get("/metrics", headers={"Authorization": authorization})
        assert answer.status_code == 200 and b"mingora_coordinator_round " in answer.data
    for authorization in ("Basic !!", "Basic " + base64.b64encode(b"\xff").decode(), "Digest x", "Basic", ""):
        assert client.get("/metrics", headers={"Authorization": authorization}).status_code == 401
    # The protocol's own routes know the protocol's header alone.
    assert client.get("/durum", headers={"Authorization": f"Bearer {KEY}"}).status_code == 401


@pytest.mark.req("COORD-7")
def test_a_nicknames_own_key(start: Start, tmp_path: Path) -> None:
    coordinator = start(key=KEY, min_results=3)
    own = coordinator.keys.add("ali")
    assert get(coordinator, "/gorev?isci=ali", KEY) == REFUSED  # the shared key isn't enough for that name
    assert get(coordinator, "/gorev?isci=ali", own)[0] == 200
    assert get(coordinator, "/gorev?isci=veli", own) == REFUSED  # one person can't fill a round
    assert get(coordinator, "/gorev?isci=veli", KEY)[0] == 200
    assert get(coordinator, "/durum", own)[0] == 200
    assert coordinator.send("ali", 0, adapter(), **{"X-Anahtar": KEY}) == REFUSED
    assert coordinator.send("ali", 0, adapter(), **{"X-Anahtar": own})[0] == 200
    newer = coordinator.keys.add("ali")
    assert get(coordinator, "/gorev?isci=ali", own) == REFUSED
    assert get(coordinator, "/gorev?isci=ali", newer)[0] == 200
    stored = (tmp_path / "data" / "keys.json").read_text()
    assert own not in stored and newer not in stored and KEY not in stored
    assert coordinator.keys.remove("ali") and not coordinator.keys.remove("ali")
    assert get(coordinator, "/gorev?isci=ali", KEY)[0] == 200


@pytest.mark.req("COORD-7")
def test_keys_by_command_count_at_once(start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    coordinator = start()
    assert get(coordinator, "/durum")[0] == 200
    data = ["--data-dir", str(tmp_path / "data")]
    capsys.readouterr()
    assert cli.main(["key", "add", "ayşe", *data]) == 0
    key = capsys.readouterr().out.strip()
    assert coordinator.get("/bilgi")["anahtar_gerekli"] is True
    assert get(coordinator, "/durum") == REFUSED
    assert get(coordinator, "/gorev?isci=ay%C5%9Fe", key)[0] == 200
    assert cli.main(["key", "list", *data]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "ayşe"
    capsys.readouterr()
    assert cli.main(["key", "remove", "ayşe", *data]) == 0
    assert "nobody gets in" in capsys.readouterr().out
    assert get(coordinator, "/durum") == REFUSED  # what kept others out doesn't let them in by going
    (tmp_path / "data" / "keys.json").unlink()
    assert get(coordinator, "/durum")[0] == 200
    assert cli.main(["key", "remove", "ayşe", *data]) == 1
    with pytest.raises(SystemExit):
        cli.main(["key", "add", "a\nb", *data])


@pytest.mark.req("COORD-7")
def test_damaged_keys_let_nobody_in(start: Start, tmp_path: Path) -> None:
    coordinator = start()
    (tmp_path / "data" / "keys.json").write_text("{")
    assert coordinator.client.get("/durum").status_code == 500
    assert coordinator.client.get("/readyz").get_json()["checks"]["keys"] == "failed"
    with pytest.raises(Exception, match=r"keys\.json can't be read"):
        Keys(tmp_path / "data" / "keys.json").names()


def ask(coordinator: Local, body: object, address: str = "127.0.0.1", **more: Any) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body)
    answer = coordinator.client.post("/soru", data=data, environ_base={"REMOTE_ADDR": address}, **more)
    return answer.status_code, answer.get_json()


@pytest.mark.req("COORD-5")
def test_a_question_is_stored_without_an_address(start: Start, tmp_path: Path) -> None:
    coordinator = start()
    question = {"soru": "Ne zaman yeni tur başlar?", "isci": "ali", "surum": "0.1.0", "baglam": ""}
    assert ask(coordinator, question, "198.51.100.7") == (200, {"tamam": True, "no": 1})
    assert ask(coordinator, {"soru": "x" * 2000}, "2001:db8::1") == (200, {"tamam": True, "no": 2})
    text = (tmp_path / "data" / "sorular.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["no"] for line in lines] == [1, 2]
    assert lines[0].items() > question.items() and set(lines[0]) == {*question, "no", "zaman"}
    for path in (tmp_path / "data").rglob("*"):
        assert not path.is_file() or not any(part in path.read_bytes() for part in (b"198.51.100.7", b"2001:db8"))


@pytest.mark.req("COORD-5")
@pytest.mark.parametrize(
    "body",
    [
        {}, {"soru": None}, {"soru": ""}, {"soru": "  \n"}, {"soru": "x" * 2001}, {"soru": 5}, {"soru": ["a"]},
        [], "soru", b"", b"\xff", b"[" * 10_000, {"soru": "a", "isci": 3}, {"soru": "a", "isci": "x" * 201},
        {"soru": "a", "surum": "x" * 61}, {"soru": "a", "baglam": {"a": 1}}, {"soru": "a", "baglam": "x" * 8001},
    ],
)  # fmt: skip
def test_what_is_no_question(start: Start, body: object) -> None:
    coordinator = start()
    for _ in range(7):  # and doesn't count as one
        status, answer = ask(coordinator, body)
        assert status == 400 and set(answer) == {"hata"}
    assert ask(coordinator, {"soru": "a"})[0] == 200


@pytest.mark.req("COORD-5")
def test_five_questions_in_ten_minutes(start: Start) -> None:
    coordinator = start()
    assert [ask(coordinator, {"soru": "a"})[0] for _ in range(6)] == [200] * 5 + [429]
    assert ask(coordinator, {"soru": "a"}, "192.0.2.1")[0] == 200
    # A customer's whole network counts as one.
    assert [ask(coordinator, {"soru": "a"}, f"2001:db8:1:2::{n}")[0] for n in range(6)] == [200] * 5 + [429]
    assert ask(coordinator, {"soru": "a"}, "2001:db8:1:3::1")[0] == 200
    answer = coordinator.client.post("/soru", data=json.dumps({"soru": "a"}))
    assert answer.status_code == 429 and int(answer.headers["Retry-After"]) == 600


@pytest.mark.req("COORD-5")
def test_a_question_that_is_too_large(start: Start) -> None:
    assert ask(start(), b'{"soru":"' + b" " * 70_000 + b'a"}')[0] == 413


@pytest.mark.req("COORD-5", "COORD-7")
def test_nobody_asks_under_a_name_that_has_its_own_key(start: Start) -> None:
    coordinator = start(key=KEY)
    own = coordinator.keys.add("ali")
    question = {"soru": "x" * 2000 + " ", "isci": "ali", "baglam": None}
    assert ask(coordinator, question, headers={"X-Anahtar": KEY}) == REFUSED
    assert ask(coordinator, question, headers={"X-Anahtar": own}) == (200, {"tamam": True, "no": 1})
    assert ask(coordinator, {**question, "isci": "veli"}, headers={"X-Anahtar": KEY})[0] == 200


@pytest.mark.req("COORD-7")
def test_keys_that_are_made_at_once_are_all_kept(tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(8)]
    makers = [threading.Thread(target=Keys(tmp_path / "keys.json").add, args=(name,)) for name in names]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join(60)
    assert Keys(tmp_path / "keys.json").names() == names


@pytest.mark.req("COORD-4")
def test_files_that_make_no_tls_server_are_told_before_serving(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path)
    authority.certify("localhost")
    (tmp_path / "text").write_text("no certificate")
    words = [
        "serve",
        "--rounds",
        "1",
        "--min-results",
        "1",
        "--data-dir",
        str(tmp_path / "data"),
        "--initial",
        "example",
    ]
    for files in (["--tls-cert", str(tmp_path / "text")], ["--tls-cert", str(authority.certificate_file)]):
        assert cli.main([*words, *files]) == 1
        assert "make no TLS server" in capsys.readouterr().err


@pytest.mark.req("COORD-6")
def test_transfers_beyond_the_places_are_asked_to_wait(start: Start) -> None:
    coordinator = start()
    readers = [coordinator.client.get("/agirlik") for _ in range(TRANSFERS)]
    late = coordinator.client.get("/agirlik")
    assert (late.status_code, late.headers["Retry-After"]) == (503, "10")
    assert coordinator.send("ali", 0, adapter())[0] == 503
    assert coordinator.client.get("/gorev?isci=ali").status_code == 200  # what is short goes on
    for reader in readers:
        reader.close()
    assert coordinator.client.get("/agirlik").status_code == 200
    assert coordinator.send("ali", 0, adapter())[0] == 200
    for _ in range(2 * TRANSFERS):  # refused ones give their place back as well
        assert coordinator.send("veli", 7, b"no")[0] == 400


@pytest.mark.req("COORD-6")
def test_figures(start: Start) -> None:
    coordinator = start(min_results=2)
    coordinator.send("ali", 0, adapter())
    coordinator.send("ali", 0, adapter())
    text = coordinator.client.get("/metrics").get_data(as_text=True)
    for line in (
        "mingora_coordinator_round 0.0",
        "mingora_coordinator_pending_results 1.0",
        "mingora_coordinator_active_workers 1.0",
        "mingora_coordinator_accepted_results_total 1.0",
        "mingora_coordinator_refused_results_total 1.0",
        f"mingora_coordinator_received_bytes_total {2.0 * len(save(adapter()))}",
        'mingora_coordinator_requests_total{method="POST",route="/sonuc",status="409"} 1.0',
    ):
        assert line in text.splitlines(), line
    assert "ali" not in text


@pytest.mark.req("COORD-4")
@pytest.mark.parametrize(
    ("peer", "status"), [("10.0.0.2", "200"), ("127.0.0.1", "200"), ("10.0.0.3", "403"), ("", "403")]
)
def test_behind_a_proxy_plain_http_is_the_proxys_alone(peer: str, status: str) -> None:
    seen: list[str] = []

    def app(_environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        start_response("200 OK", [])
        return [b""]

    OnlyFrom(app, networks("10.0.0.2"))({"REMOTE_ADDR": peer}, lambda line, _headers: seen.append(line[:3]))
    assert seen == [status]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Serve]:
    """What `serve` would have done."""
    served: list[Serve] = []
    monkeypatch.setattr(cli, "prepare", lambda _serve: None)
    monkeypatch.setattr(cli, "serve_run", served.append)
    return served


ENGLISH = (
    "--initial a --rounds 7 --min-results 3 --key 0123456789abcdef --timeout 9 --outer-lr 0.7 --outer-momentum 0.9 "
    "--outlier-factor 4 --shards 6 --inner-steps 5 --batch-size 2 --seq 64 --lr 0.1 --seed 8 --port 1 --base-model m"
)
TURKISH = (
    "--baslangic a --tur 7 --en-az 3 --anahtar 0123456789abcdef --zaman-asimi 9 --dis-lr 0.7 --dis-mom 0.9 "
    "--aykiri-kat 4 --n-parca 6 --ic-adim 5 --bs 2 --seq 64 --lr 0.1 --tohum 8 --port 1 --base-model m"
)


@pytest.mark.req("COORD-3", "COORD-4")
def test_every_option_has_the_protocols_name_too(served: list[Serve]) -> None:
    for words in (ENGLISH, TURKISH):
        assert cli.main(["serve", *words.split()]) == 0
    assert served[0] == served[1]
    settings = served[0].settings
    assert (settings.rounds, settings.min_results, settings.timeout, settings.shards) == (7, 3, 9, 6)
    assert (settings.outer_rate, settings.outer_decay, settings.outlier_factor) == (0.7, 0.9, 4)
    assert (settings.inner_steps, settings.batch_size, settings.sequence, settings.rate, settings.seed) == (
        5,
        2,
        64,
        0.1,
        8,
    )
    assert "0123456789abcdef" not in repr(served[0])


@pytest.mark.req("COORD-3")
def test_the_references_values_are_the_defaults(served: list[Serve]) -> None:
    assert cli.main(["serve", "--rounds", "20", "--min-results", "3"]) == 0
    settings = served[0].settings
    assert (settings.outer, settings.outer_rate, settings.outer_decay, settings.outlier_factor) == (
        "nesterov",
        1,
        0.5,
        5,
    )
    assert (settings.inner_steps, settings.batch_size, settings.sequence, settings.rate, settings.seed) == (
        *(20, 4, 512),
        *(2e-4, 0),
    )
    assert settings.shards == 3 and served[0].host == "127.0.0.1"


@pytest.mark.req("COORD-4")
@pytest.mark.parametrize(
    "words",
    [
        ["--host", "0.0.0.0"], ["--host", "::1"], ["--host", "127.0.0.2"], ["--tls-key", "k"], ["--tls-cert", "/none"],
        ["--behind-proxy", "example.org"], ["--key", ""], ["--key", "two words"], ["--min-results", "4096"],
        ["--rounds", "0"], ["--lr", "nan"], ["--outer", "sum"], ["--timeout", "-1"],
        ["--outer", "krum", "--min-results", "1025"], ["--outer-momentum", "1.5"],
        ["--outlier-factor", "0.5"], ["--lr", "0"], ["--lr", "2"], ["--seq", "1"],
        ["--bs", "2000"], ["--bs", "1024", "--seq", "1025"], ["--ic-adim", "200000"],
    ],
)  # fmt: skip
def test_options_that_are_refused(served: list[Serve], words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["serve", "--rounds", "2", "--min-results", "1", *words])
    assert ended.value.code == 2 and served == []


@pytest.mark.req("COORD-4")
def test_a_key_from_the_environment_or_a_file(
    served: list[Serve], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["serve", "--rounds", "2", "--min-results", "1", "--host", "10.0.0.1", "--behind-proxy", "10.0.0.2"]
    monkeypatch.setenv(cli.KEY, "short")
    assert cli.main(words) == 0
    assert served[-1].key == "short" and "can" not in served[-1].host
    assert "short enough to be guessed" in capsys.readouterr().err
    monkeypatch.delenv(cli.KEY)
    (tmp_path / "key").write_text("f" * 32 + "\n")
    monkeypatch.setenv(f"{cli.KEY}_FILE", str(tmp_path / "key"))
    assert cli.main(words) == 0
    assert served[-1].key == "f" * 32
