"""A server that speaks the page's HTTP interface from made-up data, with titles that attack."""

import argparse
import json
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import numpy as np

PAGE = Path(__file__).parents[2] / "src" / "widemax" / "serving" / "page"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "\u202eright to left\u202c שלום עולם",
    "\x1b[31mred\x1b[0m \x07bell",
    "a" * 300,
]
COLOURS, WOODS = "Pale Dark Smoky Small Ribbed Round".split(), "oak ash linen silk clay".split()
THINGS = "throw cushion clock chess-set bowl lamp tray".split()
KINDS = ["textiles", "office", "games", "kitchen", "light", "<b>bold</b>"]


class World:
    def __init__(self, num_items: int, num_runs: int, audit: dict | None) -> None:
        rng = np.random.default_rng(0)
        self.n = num_items
        centres = rng.normal(size=(len(KINDS), 16)) * 1.2
        self.kind = rng.integers(0, len(KINDS), num_items)
        self.vectors = (centres[self.kind] + rng.normal(size=(num_items, 16)) * 0.5).astype("float32")
        self.counts = (5000 / (1 + np.arange(num_items)) ** 0.7).astype(int) + 1
        flat = self.vectors @ rng.normal(size=(16, 2)).astype("float32")
        self.points = (flat / np.abs(flat).max(0)).astype("<f4")
        self.runs = ["shop", "other shop"][:num_runs]
        self.audit = audit

    def title(self, row: int) -> str:
        if row < len(HOSTILE):
            return HOSTILE[row]
        words = COLOURS[row % 6], WOODS[row // 6 % 5], THINGS[row // 30 % 7]
        return f"{' '.join(words)} {row}"

    def item(self, row: int) -> dict:
        return {
            "key": f"item-{row}",
            "title": self.title(row),
            "count": int(self.counts[row]),
            "rank": row + 1,
            "row": row,
            "features": {"kind": KINDS[self.kind[row]], "price": 3.5 + row % 90},
        }

    def row(self, key: str) -> int:
        number = key.removeprefix("item-")
        if not (key.startswith("item-") and number.isdigit() and int(number) < self.n):
            raise KeyError(f"key {key!r} is not an item of the run")
        return int(number)

    def ranked(self, query: np.ndarray, k: int, without: set[int], run: str) -> list[dict]:
        scores = self.vectors @ query + (0.3 if run == self.runs[0] else 0) * np.log(self.counts)
        scores[list(without)] = -np.inf
        order = np.argsort(-scores)[:k]
        return [{**self.item(int(row)), "score": float(scores[row])} for row in order]

    def recommend(self, asked: dict) -> dict:
        run = asked.get("run") or self.runs[0]
        rows = [self.row(key) for key in asked.get("history") or []]
        if not rows:
            raise ValueError("history must hold an item, got none")
        wanted = asked.get("filters", {}).get("kind")
        without = set() if asked.get("include_seen") else set(rows)
        if wanted:
            without |= {row for row in range(self.n) if KINDS[self.kind[row]] not in wanted}
        found = self.ranked(self.vectors[rows].mean(0), asked["k"], without, run)
        for each in found:
            mine = self.vectors[each["row"]]
            cosines = [float(mine @ self.vectors[row] / np.linalg.norm(mine) / np.linalg.norm(self.vectors[row])) for row in rows]
            near = int(np.argmax(cosines))
            each["reason"] = {"key": f"item-{rows[near]}", "title": self.title(rows[near]), "similarity": cosines[near]}
        return {"run": run, "step": 540, "items": [each for each in found if np.isfinite(each["score"])]}

    def about(self, name: str) -> dict:
        first = name == self.runs[0]
        values = [
            {"step": 60 * at, "loss": (7 if first else 7.5) - 2 * (1 - 0.8**at), "ndcg@20": (0.12 if first else 0.1) * (1 - 0.8**at), "standard_error": 0.002}
            for at in range(1, 10)
        ]
        figures = {"recall@10": 0.12, "recall@20": 0.19, "ndcg@10": 0.07, "ndcg@20": 0.11, "hit_rate@10": 0.3, "hit_rate@20": 0.4}
        for group, share in (("head", 1.6), ("torso", 0.9), ("tail", 0.4)):
            figures |= {f"{group}_{key}": value * share for key, value in list(figures.items()) if "_" not in key}
        return {
            "name": name, "model": "two-tower" if first else "sasrec", "kind": "log", "step": 540,
            "num_items": self.n, "num_users": 5000, "dimension": 16, "has_titles": True,
            "features": [
                {"name": "kind", "kind": "category", "values": KINDS},
                {"name": "price", "kind": "number", "values": []},
            ],
            "supports": ["recommend", "similar", "score", "user", "filter", "map"],
            "metric": "ndcg@20", "validations": values, "evaluation": figures,
            "audit": self.audit if first else None,
            "command": f"widemax train log.parquet --folder {name} --model two-tower --objective corrected-log-q",
            "trained": "2026-11-18T04:00:00Z",
        }  # fmt: skip

    def answer(self, path: str, query: dict, body: dict) -> object:
        run = query.get("run") or self.runs[0]
        k = int(query.get("k", 10))
        if path == "/run":
            return {"runs": [self.about(name) for name in self.runs]}
        if path == "/items":
            text = query.get("q", "").casefold()
            rows = [row for row in range(min(self.n, 20000)) if text in self.title(row).casefold()]
            return {"items": [self.item(row) for row in rows[:k]]}
        if path == "/items/rows":
            return {"items": [self.item(int(row)) for row in query["rows"].split(",")]}
        if path == "/item":
            return self.item(self.row(query["key"]))
        if path == "/users":
            users = [f"u{number:04}" for number in range(2000)]
            return {"users": [{"user": each, "length": 5} for each in users if query.get("q", "") in each][:k]}
        if path == "/user":
            start = int(query["user"][1:])
            return {"user": query["user"], "history": [self.item((start * 7 + at * 3) % self.n) for at in range(5)]}
        if path == "/recommend":
            return self.recommend(body)
        if path == "/similar":
            row = self.row(query["key"])
            return {"run": run, "step": 540, "key": query["key"], "items": self.ranked(self.vectors[row], k, {row}, run)}
        if path == "/score":
            return {"scores": [{"key": key, "title": None, "score": 4.2, "log_probability": -5.1} for key in body["items"]]}
        raise FileNotFoundError(path)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, world: World, *rest: object) -> None:
        self.world = world
        super().__init__(*rest)

    def log_message(self, *_: object) -> None:
        pass

    def send(self, status: int, kind: str, body: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", "default-src 'self'")
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.handle_any({})

    def do_POST(self) -> None:
        self.handle_any(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def handle_any(self, body: dict) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        world = self.world
        file = PAGE / ("index.html" if parts.path == "/" else parts.path.removeprefix("/static/"))
        if parts.path == "/" or parts.path.startswith("/static/") and file.is_file():
            return self.send(200, TYPES[file.suffix], file.read_bytes())
        if parts.path == "/map":
            return self.send(200, "application/octet-stream", world.points.tobytes(), X_Num_Items=str(world.n))
        if parts.path == "/map/colour":
            if query["feature"] == "kind":
                codes, names = world.kind, KINDS
            else:
                codes, names = np.minimum(2, np.arange(world.n) * 6 // world.n), ["head", "torso", "tail"]
            return self.send(200, "application/octet-stream", codes.astype("u1").tobytes(), X_Names=quote(json.dumps(names)))
        try:
            status, found = 200, world.answer(parts.path, query, body)
        except FileNotFoundError:
            status, found = 404, {"detail": f"there is no {parts.path}"}
        except (KeyError, ValueError) as error:
            status, found = 422, {"detail": str(error.args[0]), "suggestions": ["item-1"]}
        return self.send(status, "application/json", json.dumps(found).encode())


def serve(num_items: int = 600, num_runs: int = 2, port: int = 0, audit: dict | None = None) -> ThreadingHTTPServer:
    server = ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, World(num_items, num_runs, audit)))
    server.daemon_threads = True
    return server


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, default=600)
    parser.add_argument("--port", type=int, default=8123)
    parser.add_argument("--audit", type=Path)
    given = parser.parse_args()
    serve(given.items, 2, given.port, given.audit and json.loads(given.audit.read_text())).serve_forever()
