"""Sentences that espeak-ng speaks."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass

from optc.runtime.audio.wav import Sound, parse_wav

SENTENCES = (
    "The train to Edinburgh leaves at seven in the morning.",
    "Please put the milk back into the fridge before you go.",
    "She bought three apples and a loaf of bread at the market.",
    "It has been raining in the valley since last Thursday.",
    "My brother works as a nurse in a small hospital.",
    "Can you tell me how to get to the nearest library?",
    "The meeting was moved to Friday because nobody was ready.",
    "He painted the old wooden door in a bright shade of green.",
    "We should leave early if we want to avoid the traffic.",
    "The children were playing football behind the school.",
    "There is a letter for you on the kitchen table.",
    "The museum is closed on Mondays, but the park is open.",
    "I have never seen so many stars in the sky.",
    "Our neighbours are going to sell their house next year.",
    "The coffee was cold by the time the waiter brought it.",
    "She wrote a long report about the history of the city.",
    "You need a warm coat, because the nights are cold here.",
    "The bridge was built more than a hundred years ago.",
    "He asked for a ticket to the early evening show.",
    "The dog was sleeping under the table the whole afternoon.",
    "They finished the work two days before the deadline.",
    "The river is too deep to cross without a boat.",
    "My favourite season is autumn, when the leaves turn red.",
    "The teacher explained the problem one more time.",
    "We had dinner at a small restaurant near the harbour.",
    "The machine stopped working after about twenty minutes.",
    "Could you open the window and let in some fresh air?",
    "The price of tickets has gone up again this summer.",
    "She keeps all her old photographs in a shoe box.",
    "The storm damaged the roof of the church last night.",
    "He is learning to speak Spanish with his grandmother.",
    "The first chapter of the book is about his childhood.",
    "I left my keys in the car, and now it is locked.",
    "The company is looking for a new office in London.",
    "Everybody was surprised when the music stopped.",
    "The soup needs a little more salt and some pepper.",
    "We walked along the beach until the sun went down.",
    "The plane was delayed for almost three hours.",
    "She has worked in the same garden for forty years.",
    "The answer is written on the last page of the book.",
)


@dataclass(frozen=True)
class Voice:
    """A voice of espeak-ng, and words a minute."""

    name: str
    speed: int


#: Four voices at four speeds.
VOICES = (
    Voice("en-us", 150),
    Voice("en-gb", 170),
    Voice("en-gb-scotland", 160),
    Voice("en-us+f3", 140),
)


def speak(text: str, voice: Voice) -> Sound:
    """The sound of a text; ends the process with the reason where espeak-ng is missing."""
    if shutil.which("espeak-ng") is None:
        sys.exit("skipped: espeak-ng is not installed (Debian: apt-get install espeak-ng)")
    command = ["espeak-ng", "-v", voice.name, "-s", str(voice.speed), "--stdout", text]
    found = subprocess.run(command, check=True, capture_output=True)
    return parse_wav(found.stdout, "espeak-ng")


def utterances() -> list[tuple[str, Sound]]:
    """Each sentence with its sound; the voices take turns."""
    voices = (VOICES[index % len(VOICES)] for index in range(len(SENTENCES)))
    return [(text, speak(text, voice)) for text, voice in zip(SENTENCES, voices, strict=True)]
