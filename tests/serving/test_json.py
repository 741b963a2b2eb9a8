"""What is sent: JSON that every reader takes."""

import json

import pytest

from widemax.serving.http.answers import json_response


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_none_is_never_sent(number):
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_response({"items": [{"score": number}]})


@pytest.mark.parametrize("text", ["NaN", "Infinity", 'caf\u00e9 "\\\n\u2028', "\U0001f600"])
def test_texts_come_as_they_are(text):
    assert json.loads(json_response({"title": text}).body) == {"title": text}


def test_half_a_character_is_a_question_mark():
    assert json.loads(json_response({"title": "a\ud800"}).body) == {"title": "a?"}


@pytest.mark.parametrize("number", [0.1, 1e-7, 1e-5, -0.0, 1e22, 5.754523277282715, 2**60])
def test_numbers_keep_every_digit(number):
    assert repr(json.loads(json_response([number]).body)[0]) == repr(number)
