"""Lists of best answers, and scores by relation, are those that all scores give."""

import numpy as np
import pytest

from penstock import Graph, embed, etl, generate


def complex_scores(asked, relation, values):
    """Return the scores of all nodes as tails of ``asked``, by ComplEx' definition."""
    half = values.shape[1] // 2
    join = lambda x: x[..., :half] + 1j * x[..., half:]  # noqa: E731
    return ((join(asked) * join(relation)) @ join(values).conj().T).real


def lists(graph, run, k):
    """Return recall, precision and NDCG of each (head, relation), and the tails of each."""
    nodes, relations = embed.vectors(run), embed.vectors(run, relations=True)
    values, names = np.asarray(nodes.values), list(graph.manifest.relations or ())
    of_relation = np.stack([relations[name] for name in names])
    csr, sources = graph.csr(), graph.csr().sources()
    known = {}
    for h, r, t in zip(sources, csr.relations, csr.indices, strict=True):
        known.setdefault((int(h), int(r)), set()).add(int(t))
    held = {name: graph.heldout(name) for name in ("valid", "test")}
    columns = ("sources", "relations", "targets")
    for h, r, t in zip(*(held["valid"][name] for name in columns), strict=True):
        known.setdefault((int(h), int(r)), set()).add(int(t))
    asked, ranked = {}, []
    for h, r, t in zip(*(held["test"][name] for name in columns), strict=True):
        asked.setdefault((int(h), int(r)), set()).add(int(t))
    found = {"recall": [], "precision": [], "ndcg": []}
    for (h, r), true in asked.items():
        scores = complex_scores(values[h], of_relation[r], values)
        scores[sorted(known.get((h, r), set()) - true)] = np.finfo(np.float32).min
        ranked.append(scores)
        best = np.argsort(-scores)[:k].tolist()
        hits = [node in true for node in best]
        found["recall"].append(sum(hits) / len(true))
        found["precision"].append(sum(hits) / k)
        ideal = sum(1 / np.log2(2 + i) for i in range(min(k, len(true))))
        found["ndcg"].append(sum(1 / np.log2(2 + i) for i, hit in enumerate(hits) if hit) / ideal)
    return asked, found, np.array(ranked)


@pytest.mark.parametrize("k", [3, 10])
def test_lists_of_best_answers(graph, trained, k):
    found = embed.evaluate(trained[0], filtered=True, at=k)
    asked, wanted, _ = lists(graph, trained[0], k)
    assert found.lists["tail"]["queries"] == len(asked)
    for name, values in wanted.items():
        assert found.lists["tail"][name] == pytest.approx(np.mean(values), rel=1e-6), name
    assert found.lists["head"].keys() == found.lists["tail"].keys()


def test_relations_and_their_kinds(graph, trained):
    found = embed.evaluate(trained[0], filtered=True, by_relation=True)
    for groups in (found.relations, found.kinds):
        edges = [of["edges"] for of in groups.values()]
        assert sum(edges) == found.edges
        for side, scores in (("tail", found.tail), ("head", found.head)):
            mean = np.average([of[side]["mrr"] for of in groups.values()], weights=edges)
            assert mean == pytest.approx(scores["mrr"])
    assert found.relations.keys() <= {*(graph.manifest.relations or ())}
    csr = graph.csr()
    triples = np.stack([csr.sources(), csr.relations, csr.indices])
    kinds = {}
    for number, name in enumerate(graph.manifest.relations or ()):
        heads, _, tails = triples[:, triples[1] == number]
        many = [len(heads) / len({*ends.tolist()}) >= 1.5 for ends in (tails, heads)]
        kinds[name] = "-".join("N" if one else "1" for one in many)
    assert found.kinds.keys() == {kinds[name] for name in found.relations}


def test_lists_of_an_undirected_graph_have_both_ends_of_an_edge(tmp_path):
    generate("sbm", tmp_path / "all", nodes=120, seed=1, quiet=True)
    csr = Graph.open(tmp_path / "all").csr()
    rows = zip(csr.sources().tolist(), csr.indices.tolist(), strict=True)
    (tmp_path / "e.csv").write_text("src,dst\n" + "".join(f"{a},{b}\n" for a, b in rows if a < b))
    etl(tmp_path / "e.csv", tmp_path / "g", split_edges=(0.8, 0.05, 0.15))
    graph, run, k = Graph.open(tmp_path / "g"), tmp_path / "run", 5
    embed.train(tmp_path / "g", run, model="dot", dim=8, epochs=2)
    found = embed.evaluate(run, filtered=True, at=k)
    values = np.asarray(embed.vectors(run).values, np.float64)
    held = {name: graph.heldout(name) for name in ("valid", "test")}
    pairs = {
        name: [*zip(of["sources"].tolist(), of["targets"].tolist(), strict=True)]
        for name, of in held.items()
    }
    true = {}
    for a, b in pairs["test"]:
        true.setdefault(a, set()).add(b)
        true.setdefault(b, set()).add(a)
    csr = graph.csr()
    known = {node: {node} for node in true}
    others = [*zip(csr.sources().tolist(), csr.indices.tolist(), strict=True)]
    others += [pair for a, b in pairs["valid"] for pair in ((a, b), (b, a))]
    for a, b in others:
        if a in known:
            known[a].add(b)
    recall = []
    for node, answers in true.items():
        scores = values @ values[node]
        scores[sorted(known[node] - answers)] = -np.inf
        recall.append(len(answers & {*np.argsort(-scores)[:k].tolist()}) / len(answers))
    assert found.lists.keys() == {"neighbour"}
    assert found.lists["neighbour"]["queries"] == len(true)
    assert found.lists["neighbour"]["recall"] == pytest.approx(np.mean(recall))
    assert embed.evaluate(run, sample=20).lists == {}


def test_copies_of_an_edge_do_not_change_the_kind_of_its_relation(tmp_path):
    rows = [f"a{n},one,b{n},{t}\n" for n in range(40) for t in range(3)]
    rows += [f"a{n},many,c{m},0\n" for n in range(8) for m in range(5)]
    (tmp_path / "e.csv").write_text("head,relation,tail,t\n" + "".join(rows))
    held = [f"a{n},one,b{n},9\n" for n in range(5)] + ["a1,many,c2,9\n"]
    (tmp_path / "t.csv").write_text("head,relation,tail,t\n" + "".join(held))
    etl(tmp_path / "e.csv", tmp_path / "g", time="t", test=tmp_path / "t.csv", directed=True)
    embed.train(tmp_path / "g", tmp_path / "run", dim=4, epochs=1)
    found = embed.evaluate(tmp_path / "run", by_relation=True)
    assert {name: of["edges"] for name, of in (found.kinds or {}).items()} == {"1-1": 5, "N-N": 1}
