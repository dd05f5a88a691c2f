"""``/`` and ``/status``."""

from __future__ import annotations

from optc.serve.page.document import policy
from optc.serve.settings import HTTPSettings
from tests.serve.conftest import Api, MakeApi
from tests.serve.toys import toy_engine


def test_the_page(api: Api) -> None:
    answer = api.http.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == policy()
    assert "<title>optc serve</title>" in answer.text


def test_the_page_needs_no_key_and_its_figures_do(make_api: MakeApi) -> None:
    api = make_api(settings=HTTPSettings(keys=("sk-one",)))
    assert api.http.get("/").status_code == 200
    assert api.http.get("/status").status_code == 401
    assert api.http.get("/status", headers={"x-api-key": "sk-one"}).status_code == 200


def test_counters_of_now(make_api: MakeApi) -> None:
    settings = HTTPSettings(ttft_s=0.5**30, itl_s=100.0)
    api = make_api({"one": toy_engine(), "two": toy_engine(template="")}, settings)
    before = api.http.get("/status").json()
    body = {"model": "one", "prompt": "hi", "max_tokens": 4, "ignore_eos": True}
    api.post("/v1/completions", **body)
    after = api.http.get("/status").json()
    assert after["state"] == "ready"
    assert after["uptime_s"] > before["uptime_s"]
    one, two = after["models"]
    assert (one["name"], one["chats"], two["chats"]) == ("one", True, False)
    assert (one["output_tokens"], one["finished"]) == (4, {"length": 1})
    assert one["latencies"]["itl_s"]["count"] == 3
    assert one["latencies"]["itl_s"]["buckets"][-1][1] == 3
    assert one["objectives"] == {"ttft_ms": 1e3 * 0.5**30, "itl_ms": 100_000.0}
    assert (one["within_objectives"], one["objective_requests"]) == (0, 1)
    assert two["objective_requests"] == 0


def test_polls_have_no_line(api: Api) -> None:
    for _ in range(3):
        api.http.get("/status")
    api.http.get("/version")
    assert [line["path"] for line in api.log] == ["/version"]


def test_a_poll_that_is_refused_has_one(make_api: MakeApi) -> None:
    api = make_api(settings=HTTPSettings(keys=("sk-one",)))
    api.http.get("/status")
    assert [line["status"] for line in api.log] == [401]
