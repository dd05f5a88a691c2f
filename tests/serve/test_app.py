"""Routes that there are, routes that there are not, hosts, and pages of other sites."""

from __future__ import annotations

import pytest

from optc.serve.routes.unsupported import REASONS
from optc.serve.settings import HTTPSettings
from tests.serve.conftest import Api, MakeApi
from tests.serve.toys import toy_engine


def test_models(make_api: MakeApi) -> None:
    api = make_api({"one": toy_engine(), "org/two": toy_engine()})
    listed = api.http.get("/v1/models").json()
    assert listed["object"] == "list"
    assert [one["id"] for one in listed["data"]] == ["one", "org/two"]
    assert listed["data"][0]["max_model_len"] == api.engine.max_context
    assert api.http.get("/v1/models/org/two").json() == listed["data"][1]
    error = api.http.get("/v1/models/three").json()["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "model")


def test_requests_choose_a_model(make_api: MakeApi) -> None:
    two = toy_engine(template="{{ messages[0].content }}")
    api = make_api({"one": toy_engine(), "two": two})
    for name in ("one", "two"):
        assert api.post("/v1/completions", prompt="hi", model=name, max_tokens=1)["model"] == name
    assert two.metrics().prompt_tokens == api.engine.metrics().prompt_tokens > 0
    assert api.error("/v1/completions", 400, prompt="hi")["message"] == "name a model: one, two"
    error = api.error("/v1/completions", 404, prompt="hi", model="x" * 1000)
    assert len(error["message"]) < 400


def test_a_model_without_a_template_has_no_chats(make_api: MakeApi) -> None:
    api = make_api({"toy": toy_engine(template="")})
    message = {"role": "user", "content": "hi"}
    for path in ("/v1/chat/completions", "/tokenize"):
        assert "no chat template" in api.error(path, messages=[message])["message"]


@pytest.mark.parametrize("path", REASONS)
def test_routes_that_cannot_be_served_say_why(api: Api, path: str) -> None:
    error = api.error(path, 404, input="hi")
    assert error["code"] == "unsupported_route"
    assert REASONS[path] in error["message"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nothing", 404), ("GET", "/v1/completions", 405), ("DELETE", "/v1/models", 405)],
)
def test_routes_that_there_are_not(api: Api, method: str, path: str, status: int) -> None:
    answer = api.http.request(method, path)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_pages_of_other_sites_may_ask_where_the_operator_says_so(
    api: Api, make_api: MakeApi
) -> None:
    asks = {"origin": "https://a.example", "access-control-request-method": "POST"}
    assert "access-control-allow-origin" not in api.http.options("/v1/models", headers=asks).headers
    settings = HTTPSettings(origins=("https://a.example",), keys=("k",))
    opened = make_api(settings=settings)
    allowed = opened.http.options("/v1/models", headers=asks)
    assert allowed.headers["access-control-allow-origin"] == "https://a.example"
    asks["origin"] = "https://b.example"
    assert opened.http.options("/v1/models", headers=asks).status_code == 400


def test_what_is_loading_or_drains_takes_no_requests(make_api: MakeApi) -> None:
    api = make_api(load=False)

    def refused(status: str) -> None:
        for path in ("/v1/completions", "/tokenize"):
            answer = api.http.post(path, json={"prompt": "hi"})
            assert answer.status_code == 503
            assert answer.headers["retry-after"] == "1"
        assert api.http.get("/ready").json() == {"status": status}
        assert api.http.get("/ready").status_code == 503
        assert api.http.get("/health").status_code == 200

    refused("loading")
    api.service.models.load()
    assert api.http.get("/ready").status_code == 200
    api.post("/v1/completions", prompt="hi", max_tokens=1)
    api.service.draining = True
    refused("draining")
