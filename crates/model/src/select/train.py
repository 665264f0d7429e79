"""Trains a model of completion times with scikit-learn, for `manyways steer train`.

Input is a table of transfers (CSV): the columns group, choice, size (bytes), seconds, closed (ln of
the seconds of the closed form), and ROLE.INDICATOR, which are empty where a value is unknown.
Output is a model (JSON, manyways.select-model/1) in one line, which crates/model/src/select/model.rs
reads; messages about the training are on standard error.

Hyper-parameters and features are chosen by inner folds that leave out whole groups. The ends of the
80 % intervals are quantiles of the residuals of these folds (split conformal prediction).
"""

import argparse
import csv
import json
import math
import os
import sys

# The tables are small: threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

CHOICES = {"wifi": ["wifi"], "lte": ["lte"], "wifi+lte": ["wifi", "lte"], "lte+wifi": ["wifi", "lte"]}
SIZE_CLASSES = [5_000, 50_000, 500_000, 5_000_000, None]
FOLDS = 5
MAX_SVR_ROWS = 1_500
MIN_ROWS = 40
# Signals, which cost nothing and which many devices do not have.
SIGNALS = ["rssi", "link-rate", "access-points", "rsrp", "rsrq", "snr", "cqi"]
# How the time changes with an indicator: 1 grows, -1 falls, not listed either.
DIRECTIONS = {
    **dict.fromkeys(["rssi", "link-rate", "rsrp", "rsrq", "snr", "cqi", "udp-rate"], -1),
    **dict.fromkeys(["ping-min", "ping-max", "ping-mean", "dns-time", "udp-loss"], 1),
    **dict.fromkeys(["udp-gap-mean", "udp-gap-median", "udp-gap-p90"], 1),
}


def fail(message):
    print(f"train: {message}", file=sys.stderr)
    sys.exit(2)


try:
    import numpy as np
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.svm import SVR
    from sklearn.tree import DecisionTreeRegressor
except ImportError as error:
    fail(f"{error.name} is missing (install with: pip install scikit-learn)")


class Table:
    """The rows of one choice: features, ln(seconds) and groups."""

    def __init__(self, names, x, y, groups, sizes):
        self.names, self.x, self.y, self.groups, self.sizes = names, x, y, groups, sizes

    def take(self, rows):
        return Table(self.names, self.x[rows], self.y[rows], self.groups[rows], self.sizes[rows])


def read(path):
    """Returns a table for each choice."""
    try:
        with sys.stdin if path == "-" else open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        fail(f"{path}: {error}")
    if not rows:
        fail(f"{path}: it has no rows")
    for column in ["group", "choice", "size", "seconds", "closed"]:
        if column not in rows[0]:
            fail(f"{path}: the column {column} is missing")
    tables = {}
    for choice, roles in CHOICES.items():
        own = [row for row in rows if row["choice"] == choice]
        if not own:
            continue
        if len(own) < MIN_ROWS:
            fail(f"{path}: the choice {choice} has {len(own)} transfers, and needs {MIN_ROWS}")
        names = [name for name in own[0] if name.split(".")[0] in roles and "." in name]
        names = [name for name in names if any(row[name] for row in own)]
        try:
            columns = [[math.log(max(1.0, float(row["size"]))) for row in own]]
            columns.append([float(row["closed"]) for row in own])
            columns += [[float(row[name]) if row[name] else math.nan for row in own] for name in names]
            seconds = np.array([float(row["seconds"]) for row in own])
        except ValueError as error:
            fail(f"{path}: {error}")
        if not (np.isfinite(seconds) & (seconds > 0)).all():
            fail(f"{path}: a transfer of {choice} has no positive number of seconds")
        groups = np.array([row["group"] for row in own])
        sizes = np.array([float(row["size"]) for row in own])
        x = np.array(columns).T
        tables[choice] = Table(["size", "closed", *names], x, np.log(seconds), groups, sizes)
    if not tables:
        fail(f"{path}: no row has a known choice")
    return tables


def folds(table, seed):
    """Splits of rows that leave out whole groups, or rows if there are too few groups."""
    names = np.unique(table.groups)
    random = np.random.default_rng(seed)
    if len(names) >= 3:
        random.shuffle(names)
        parts = np.array_split(names, min(FOLDS, len(names)))
        tests = [np.isin(table.groups, part) for part in parts]
    else:
        numbers = random.integers(0, FOLDS, len(table.y))
        tests = [numbers == fold for fold in range(FOLDS)]
    return [(~test, test) for test in tests if test.any() and not test.all()]


def medians(x):
    return np.nan_to_num(np.nanmedian(x, axis=0))


def filled(x, middle):
    return np.where(np.isnan(x), middle, x)


class Tree:
    """Delphi's regression tree."""

    GRID = [{"leaf": leaf} for leaf in (2, 5, 10, 20, 40)]

    def __init__(self, table, leaf, seed):
        self.names, self.middle = table.names, medians(table.x)
        self.tree = DecisionTreeRegressor(min_samples_leaf=leaf, random_state=seed)
        self.tree.fit(filled(table.x, self.middle), table.y)

    def predict(self, table):
        return self.tree.predict(filled(table.x, self.middle))

    def document(self):
        tree = self.tree.tree_
        is_leaf = tree.children_left < 0
        arrays = {
            "feature": np.where(is_leaf, -1, tree.feature),
            # scikit-learn compares values of 32 bits; those of training have been rounded so.
            "threshold": np.where(is_leaf, 0.0, tree.threshold),
            "left": np.where(is_leaf, 0, tree.children_left),
            "right": np.where(is_leaf, 0, tree.children_right),
            "missing_left": np.zeros(len(is_leaf), bool),
            "value": tree.value[:, 0, 0],
        }
        arrays = {name: array.tolist() for name, array in arrays.items()}
        return {"kind": "tree", "features": self.names, "medians": self.middle.tolist(), "tree": arrays}


class Svr:
    """Delphi's support vectors: the N features with the greatest correlation."""

    GRID = [
        {"count": count, "c": c, "gamma": gamma}
        for count in (3, 6, 12)
        for c in (1.0, 10.0)
        for gamma in (0.03, 0.2)
    ]

    def __init__(self, table, count, c, gamma, seed):
        random = np.random.default_rng(seed)
        if len(table.y) > MAX_SVR_ROWS:
            table = table.take(random.choice(len(table.y), MAX_SVR_ROWS, replace=False))
        x = filled(table.x, medians(table.x))
        deviation = x.std(axis=0)
        centered = (x - x.mean(axis=0)) * (table.y - table.y.mean())[:, None]
        scale = np.where(deviation > 0, deviation, 1.0) * max(table.y.std(), 1e-12)
        correlation = np.where(deviation > 1e-9, np.abs(centered.mean(axis=0)) / scale, -1.0)
        order = [index for index in np.argsort(-correlation, kind="stable") if correlation[index] >= 0]
        self.places = order[:count]
        self.names = [table.names[index] for index in self.places]
        x = x[:, self.places]
        self.middle, self.mean, self.scale = medians(table.x)[self.places], x.mean(axis=0), x.std(axis=0)
        self.svr = SVR(C=c, gamma=gamma, epsilon=0.05)
        self.svr.fit((x - self.mean) / self.scale, table.y)

    def predict(self, table):
        x = filled(table.x[:, self.places], self.middle)
        return self.svr.predict((x - self.mean) / self.scale)

    def document(self):
        return {
            "kind": "svr",
            "features": self.names,
            "medians": self.middle.tolist(),
            "gamma": self.svr.gamma,
            "intercept": float(self.svr.intercept_[0]),
            "mean": self.mean.tolist(),
            "scale": self.scale.tolist(),
            "vectors": self.svr.support_vectors_.tolist(),
            "coefficients": self.svr.dual_coef_[0].tolist(),
        }


class Boosted:
    """Boosted trees over the closed form and the indicators, monotone in closed form and size.

    Beyond the closed forms of the training, the time follows the closed form. With a base, which is
    another model of this kind, the prediction is the mean of both.
    """

    GRID = [{"leaves": leaves, "rounds": rounds} for leaves, rounds in [(8, 60), (8, 100), (8, 30), (4, 60)]]
    RATE, SMALLEST = 0.1, 20

    def __init__(self, table, leaves, rounds, seed, base=None):
        self.base = base
        # An indicator that is unknown in all rows has no thresholds.
        self.places = [place for place in range(table.x.shape[1]) if not np.isnan(table.x[:, place]).all()]
        self.names = [table.names[place] for place in self.places]
        self.middle = medians(table.x[:, self.places])
        self.range = [float(table.x[:, 1].min()), float(table.x[:, 1].max())]
        indicators = [name.split(".")[1] for name in self.names[2:]]
        self.model = HistGradientBoostingRegressor(
            learning_rate=self.RATE,
            max_iter=rounds,
            max_leaf_nodes=leaves,
            min_samples_leaf=self.SMALLEST,
            l2_regularization=1.0,
            monotonic_cst=[1, 1] + [DIRECTIONS.get(name, 0) for name in indicators],
            early_stopping=False,
            random_state=seed,
        )
        self.model.fit(table.x[:, self.places], table.y)

    def predict(self, table):
        own = self.model.predict(table.x[:, self.places])
        if self.base is not None:
            own = (own + evaluated(self.base, table)) / 2
        low, high = self.joint_range()
        return own + table.x[:, 1] - np.clip(table.x[:, 1], low, high)

    def joint_range(self):
        ranges = [self.range] if self.base is None else [self.range, self.base["range"]]
        return [min(low for low, _ in ranges), max(high for _, high in ranges)]

    def document(self):
        trees = []
        for (predictor,) in self.model._predictors:
            nodes = predictor.nodes
            is_leaf = nodes["is_leaf"].astype(bool)
            trees.append({
                "feature": np.where(is_leaf, -1, nodes["feature_idx"]).tolist(),
                # A threshold that only divides the known from the unknown values is infinite.
                "threshold": np.where(is_leaf, 0.0, np.minimum(nodes["num_threshold"], 1.7e308)).tolist(),
                "left": np.where(is_leaf, 0, nodes["left"]).tolist(),
                "right": np.where(is_leaf, 0, nodes["right"]).tolist(),
                "missing_left": nodes["missing_go_to_left"].astype(bool).tolist(),
                "value": np.where(is_leaf, nodes["value"], 0.0).tolist(),
            })
        own = {
            "kind": "boosted",
            "features": self.names,
            "medians": self.middle.tolist(),
            "baseline": float(np.ravel(self.model._baseline_prediction)[0]),
            "range": self.joint_range(),
            "trees": trees,
        }
        return own if self.base is None else mean(own, self.base)


def mean(own, base):
    """A document whose predictions are the mean of those of two documents."""
    names = own["features"] + [name for name in base["features"] if name not in own["features"]]
    middle = dict(zip(base["features"], base["medians"])) | dict(zip(own["features"], own["medians"]))
    trees = []
    for document in [own, base]:
        places = [names.index(name) for name in document["features"]]
        for tree in document["trees"]:
            features = [places[place] if place >= 0 else -1 for place in tree["feature"]]
            trees.append(tree | {"feature": features, "value": [value / 2 for value in tree["value"]]})
    own["features"], own["medians"] = names, [middle[name] for name in names]
    own["baseline"] = (own["baseline"] + base["baseline"]) / 2
    own["trees"] = trees
    return own


def evaluated(document, table):
    """The sum of the trees of a document for each row."""
    rows = np.arange(len(table.y))
    unknown = np.full(len(rows), np.nan)
    columns = {name: table.x[:, place] for place, name in enumerate(table.names)}
    x = np.array([columns.get(name, unknown) for name in document["features"]])
    found = np.full(len(rows), document["baseline"])
    for tree in document["trees"]:
        arrays = {name: np.array(array) for name, array in tree.items()}
        node = np.zeros(len(rows), int)
        while (inner := arrays["feature"][node] >= 0).any():
            value = x[arrays["feature"][node], rows]
            left = np.where(np.isnan(value), arrays["missing_left"][node], value <= arrays["threshold"][node])
            node = np.where(inner, np.where(left, arrays["left"][node], arrays["right"][node]), node)
        found += arrays["value"][node]
    return found


KINDS = {"tree": Tree, "svr": Svr, "boosted": Boosted}


def with_blanks(table):
    """The rows, and again without signals, with the rate and the round trip only, and with nothing."""
    names = [name.split(".")[-1] for name in table.names]
    copies = [table.x]
    for known in [
        [name not in SIGNALS for name in names],
        [name in ["size", "closed", "udp-rate", "ping-mean"] for name in names],
        [name in ["size", "closed"] for name in names],
    ]:
        copies.append(np.where(known, table.x, np.nan))
    again = lambda array: np.concatenate([array] * len(copies))
    return Table(table.names, np.concatenate(copies), again(table.y), again(table.groups), again(table.sizes))


def read_base(path):
    """The regressors of a model of boosted trees; - is the first line of standard input."""
    try:
        if path == "-":
            regressors = json.loads(sys.stdin.readline())["regressors"]
        else:
            with open(path, encoding="utf-8") as file:
                regressors = json.load(file)["regressors"]
    except (OSError, ValueError, KeyError) as error:
        fail(f"{path}: {error}")
    if any(regressor.get("kind") != "boosted" for regressor in regressors.values()):
        fail(f"{path}: its kind is not boosted")
    return regressors


def choose(kind, grid, table, seed):
    """The best parameters of a grid, and the residuals of the rows in the folds that did not train on them."""
    splits = folds(table, seed)
    best = None
    for parameters in grid:
        residuals = np.full(len(table.y), np.nan)
        for train, test in splits:
            model = kind(table.take(train), seed=seed, **parameters)
            residuals[test] = table.y[test] - model.predict(table.take(test))
        error = float(np.nanmean(np.abs(residuals)))
        if best is None or error < best[0] - 1e-12:
            best = (error, parameters, residuals)
    return best


def intervals(residuals, sizes):
    """Quantiles of the residuals by size, with the correction for their number."""
    found, last = [], 0.0
    for limit in SIZE_CLASSES:
        own = residuals[(sizes > last) & (sizes <= (limit or math.inf)) & ~np.isnan(residuals)]
        own = own if len(own) >= 20 else residuals[~np.isnan(residuals)]
        share = min(1.0, 0.9 * (1 + 1 / len(own)))
        low, high = np.quantile(own, [1 - share, share])
        found.append({"up_to": limit, "low": min(float(low), 0.0), "high": max(float(high), 0.0)})
        last = limit
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", help="a file; - is standard input")
    parser.add_argument("--kind", choices=sorted(KINDS), default="boosted")
    parser.add_argument("--title", default="trained model")
    parser.add_argument("--data", default="own transfers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fast", action="store_true", help="try only the first parameters")
    parser.add_argument("--base", metavar="MODEL", help="boosted trees to take the mean with; - is the first line of standard input")
    parser.add_argument("--blanks", action="store_true", help="also train on each transfer with fewer indicators")
    parser.add_argument("--predictions", action="store_true", help="print the predictions in another line")
    arguments = parser.parse_args()
    kind, regressors, predictions = KINDS[arguments.kind], {}, {}
    grid = kind.GRID[:1] if arguments.fast else kind.GRID
    if arguments.base and arguments.kind != "boosted":
        fail("--base needs --kind boosted")
    bases = read_base(arguments.base) if arguments.base else {}
    for choice, table in read(arguments.table).items():
        if arguments.blanks:
            table = with_blanks(table)
        base = {"base": bases[choice]} if choice in bases else {}
        candidates = [parameters | base for parameters in grid]
        error, parameters, residuals = choose(kind, candidates, table, arguments.seed)
        model = kind(table, seed=arguments.seed, **parameters)
        document = model.document()
        document["intervals"] = intervals(residuals, table.sizes)
        regressors[choice], predictions[choice] = document, model.predict(table).tolist()
        shown = ", ".join(f"{name} {value}" for name, value in parameters.items() if name != "base")
        words = f"{choice}: {len(table.y)} transfers, error {error:.3f} of ln(seconds); {shown}"
        print(words, file=sys.stderr)
    model = {
        "schema": "manyways.select-model/1",
        "title": arguments.title,
        "data": arguments.data,
        "regressors": regressors,
    }
    print(json.dumps(model, allow_nan=False, separators=(",", ":")))
    if arguments.predictions:
        print(json.dumps(predictions))


main()
