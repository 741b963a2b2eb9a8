"""What the server answers is what the library does, to the last digit."""

import json
from urllib.parse import unquote

import numpy as np
import pytest

import widemax as wm
from tests.serving.conftest import HOSTILE, NUM_ITEMS, NUM_USERS


@pytest.fixture(scope="module")
def run(shop):
    return wm.load(shop / "towers")


def pairs(found):
    return [(each.key, each.score) for each in found]


def answered(answer):
    return [(each["key"], each["score"]) for each in answer["items"]]


QUESTIONS = [
    {"history": ["i1", "i5"]},
    {"history": ["Thing 7"], "k": 3},
    {"user": "u4", "k": 40},
    {"user": "u4", "include_seen": True, "exact": True},
    {"history": ["i2"], "user": "u9"},
    {"history": ["i1"], "leave_out": ["i3", "i4"], "k": 40},
    {"history": ["i1"], "filters": {"category": ["tea", "gin"], "price": ["5..20"]}, "k": 40},
    {"history": ["i1"], "filters": {"tags": ["new"]}},
    {"features": {"age": 44, "likes": "rum"}},
    {"features": {"likes": "tea"}, "history": ["i9"]},
]


@pytest.mark.parametrize("asked", QUESTIONS, ids=str)
def test_recommendations_are_those_of_the_library(served, run, asked):
    answer = served.post("/recommend", asked)
    assert answered(answer) == pairs(run.recommend(**asked))
    assert (answer["run"], answer["step"]) == ("towers", run.step)


def test_a_batch_has_the_digits_of_its_questions(served):
    alone = [served.post("/recommend", asked) for asked in QUESTIONS]
    assert served.post("/recommend", {"queries": QUESTIONS}) == {"answers": alone}
    wrong = served.post("/recommend", {"queries": [{"user": "u4"}, {"user": "u999"}]}, 422)
    assert wrong["detail"].startswith("queries[1]: user 'u999'")
    both = served.post("/recommend", {"queries": [{"user": "u4"}], "k": 3}, 422)
    assert "queries stands alone" in both["detail"]


def test_filters_let_pass_what_they_say_and_k_of_it(served):
    asked = {"history": ["i1"], "filters": {"category": ["tea"], "price": ["..20"]}, "k": 40}
    items = served.post("/recommend", asked)["items"]
    assert {each["key"] for each in items} == {
        f"i{item}" for item in range(21) if item % 3 == 0 and item != 1
    }
    assert all(each["features"]["category"] == "tea" for each in items)
    tagged = served.post("/recommend", {**asked, "filters": {"tags": ["new"]}})["items"]
    assert {each["key"] for each in tagged} == {f"i{item}" for item in range(2, NUM_ITEMS, 3)}
    assert served.post("/recommend", {**asked, "filters": {"price": ["99.."]}})["items"] == []


SIMILAR = [
    {"key": "i7", "filters": {"category": ["tea", "gin"], "price": ["5..20"]}, "k": 40},
    {"key": "Thing 9", "leave_out": ["i3", "Thing 4"], "k": 40},
    {"key": "i7", "filters": {"tags": ["new"]}, "leave_out": ["i8"], "k": 5},
]


def test_similar_items_are_filtered_and_left_out_as_recommended_ones_are(served, run):
    alone = [served.post("/similar", asked) for asked in SIMILAR]
    for asked, answer in zip(SIMILAR, alone, strict=True):
        assert answered(answer) == pairs(run.similar(**asked))
    assert served.post("/similar", {"queries": SIMILAR}) == {"answers": alone}
    passing = {f"i{item}" for item in range(5, 21) if item % 3 != 1 and item != 7}
    assert {each["key"] for each in alone[0]["items"]} == passing
    keys = {each["key"] for each in alone[1]["items"]}
    assert keys == {f"i{item}" for item in range(NUM_ITEMS)} - {"i9", "i3", "i4"}
    assert "i8" not in {each["key"] for each in alone[2]["items"]}
    for wrong in ({"filters": {"categori": ["tea"]}}, {"leave_out": ["i999"]}):
        served.post("/similar", {"key": "i7", **wrong}, 422)


def test_the_reason_is_the_nearest_item_of_the_history(served, run):
    history = ["i1", "i5", "i8"]
    vectors = dict(zip(run.vocabulary.keys, run.vectors().vectors.numpy(), strict=True))

    def cosine(one, other):
        a, b = vectors[one].astype(float), vectors[other].astype(float)
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    for item in served.post("/recommend", {"history": history})["items"]:
        nearest = max(history, key=lambda each: cosine(each, item["key"]))
        assert item["reason"]["key"] == nearest
        assert item["reason"]["similarity"] == pytest.approx(cosine(nearest, item["key"]), abs=1e-5)
    unlike = served.post("/recommend", {"history": history, "run": "popularity"})["items"]
    assert all(item["reason"] is None for item in unlike)


def test_neighbours_and_scores_are_those_of_the_library(served, run):
    for key in ("i7", "i11"):
        expected = pairs(run.similar(key, k=5))
        assert answered(served.get("/similar", key=key, k=5)) == expected
        batch = served.post("/similar", {"queries": [{"key": key, "k": 5}]})
        assert answered(batch["answers"][0]) == expected
    keys = ["i3", "i30", "i1"]
    found = served.post("/score", {"user": "u4", "items": keys})["scores"]
    expected = run.score_items(keys, user="u4")
    assert [each["key"] for each in found] == keys
    assert [each["score"] for each in found] == [each.score for each in expected]
    assert [each["log_probability"] for each in found] == [
        each.log_probability for each in expected
    ]
    ranked = dict(pairs(run.recommend(user="u4", include_seen=True, k=40)))
    for each in found:
        assert each["score"] == pytest.approx(ranked[each["key"]], rel=1e-5)
    everything = run.score_items([f"i{item}" for item in range(NUM_ITEMS)], user="u4")
    assert sum(np.exp(each.log_probability) for each in everything) == pytest.approx(1, abs=1e-4)


def test_somebody_new_with_the_features_of_a_user_gets_what_the_user_gets(served, run):
    history = ["i1", "i2"]
    as_user = served.post("/recommend", {"history": history, "user": "u4"})
    age, likes = 24, "tea"
    as_new = served.post(
        "/recommend", {"history": history, "features": {"age": age, "likes": likes}}
    )
    assert answered(as_new) == answered(as_user)
    other = served.post("/recommend", {"history": history, "features": {"age": 69, "likes": "rum"}})
    assert answered(other) != answered(as_user)
    # The model itself has stayed as it was.
    assert answered(served.post("/recommend", {"history": history, "user": "u4"})) == answered(
        as_user
    )


def test_several_runs_answer_side_by_side(served, shop):
    popular = wm.load(shop / "popularity")
    asked = {"history": ["i1"], "k": 5}
    answer = served.post("/recommend", {**asked, "run": "popularity"})
    assert answered(answer) == pairs(popular.recommend(**asked))
    assert served.get("/health") == {"status": "ok", "runs": ["towers", "popularity"]}
    towers, other = served.get("/run")["runs"]
    assert (towers["name"], towers["num_items"], towers["num_users"]) == (
        "towers",
        NUM_ITEMS,
        NUM_USERS,
    )
    assert {each["name"]: each["kind"] for each in towers["features"]} == {
        "category": "category",
        "price": "number",
        "tags": "tokens",
    }
    assert {"recommend", "similar", "score", "user", "filter", "map"} <= set(towers["supports"])
    assert not {"similar", "map", "filter"} & set(other["supports"])
    assert str(shop) not in json.dumps([towers, other])
    unknown = served.get("/items", 404, run="towrs")
    assert unknown["suggestions"] == ["towers"]


def test_items_are_found_by_the_beginning_then_by_a_part(served, run):
    found = served.get("/items", q="THING 1", k=40)["items"]
    titles = [each["title"] for each in found]
    assert sorted(titles) == sorted(f"Thing {item}" for item in [1, *range(10, 20)])
    assert [each["rank"] for each in found] == sorted(each["rank"] for each in found)
    keys = [each["key"] for each in served.get("/items", q="i3", k=40)["items"]]
    begin = [f"i{item}" for item in [3, *range(30, 40)]]
    assert set(keys[: len(begin)]) == set(begin)
    item = served.get("/item", key="i12")
    assert item["features"] == {"category": "tea", "price": 12.0, "tags": []}
    assert served.get("/items/rows", rows=f"{item['row']}")["items"] == [item]
    counts = dict(run.vocabulary.table.iter_rows())
    assert item["count"] == counts["i12"]


def test_a_misspelt_item_is_answered_with_the_nearest_ones(served):
    assert served.get("/items", q="thing 12")["nearest"] == []
    found = served.get("/items", q="thnig 12", k=2)
    assert found["items"] == []
    assert found["nearest"][0] == served.get("/item", key="i12")
    assert len(found["nearest"]) == 2
    assert served.get("/items", q="no such name at all")["nearest"] == []


def test_a_path_says_which_method_it_takes(served):
    assert served.get("/recommend", 405)["detail"] == "'/recommend' takes POST, got GET"


def test_class_ids_are_given_once(served):
    refused = served.get("/items/rows", 422, rows=["1", "2"])
    assert refused["detail"] == "rows can be given once: join class ids by commas, rows=3,17"


def test_users_and_what_they_had(served, run):
    found = served.get("/users", q="u1", k=3)["users"]
    assert [each["user"] for each in found] == ["u1", "u10", "u11"]
    had = served.get("/user", user="u10")["history"]
    assert [each["key"] for each in had] == [each.key for each in run.history("u10")]
    assert len(had) == found[1]["length"]


def test_the_map_is_the_plane_of_the_vectors_and_kept(served, run, shop):
    answer = served.client.get("/map")
    assert answer.headers["x-num-items"] == str(NUM_ITEMS)
    plane = np.frombuffer(answer.content, "<f4").reshape(-1, 2)
    vectors = run.vectors().vectors.numpy().astype(float)
    centred = vectors - vectors.mean(0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    for axis in range(2):
        own = left[:, axis] * sizes[axis]
        own /= abs(own).max()
        assert min(abs(plane[:, axis] - own).max(), abs(plane[:, axis] + own).max()) < 1e-4
    assert (shop / "towers" / "map.safetensors").is_file()
    assert served.get("/map", 422, run="popularity")["detail"].startswith("popularity has no map")
    colour = served.client.get("/map/colour", params={"feature": "category"})
    names = json.loads(unquote(colour.headers["x-names"]))
    codes = dict(zip(run.vocabulary.keys, colour.content, strict=True))
    assert all(names[codes[f"i{i}"]] == ("tea", "rum", "gin")[i % 3] for i in range(NUM_ITEMS))
    popular = served.client.get("/map/colour", params={"feature": "popularity"})
    assert json.loads(unquote(popular.headers["x-names"])) == ["head", "torso", "tail"]


def test_metrics_count_what_was_answered(served):
    served.get("/health")
    text = served.client.get("/metrics").text
    assert 'widemax_requests_total{route="/health",status="200"}' in text
    assert 'widemax_run_step{run="towers"}' in text
    served.client.get("/" + "x" * 50)
    assert "xxx" not in served.client.get("/metrics").text


def test_fault_28_titles_are_text_under_a_policy(served):
    item = served.get("/item", key="i3")
    assert item["title"] == HOSTILE
    for path in ("/", "/item?key=i3", "/nowhere"):
        answer = served.client.get(path)
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert served.client.get("/item?key=i3").headers["content-type"] == "application/json"
    assert served.client.get("/").headers["content-type"].startswith("text/html")
