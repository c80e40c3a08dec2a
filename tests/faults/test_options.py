"""Options that would be ignored, or contradict each other: exit code 2, and nothing is written."""

import pytest
from every_job import refused

ROWS = """
etl {given}/edges.parquet {out} --label x                                   | --label
etl {given}/edges.parquet {out} --format parquet --graph-id x               | --graph-id
etl {given}/edges.parquet {out} --header no                                 | --header
etl {given}/edges.parquet {out} --delimiter tab                             | --delimiter
etl {given}/edges.parquet {out} --since 3                                   | --time
etl {given}/edges.parquet {out} --merge-times                               | --time
etl {given}/edges.parquet {out} --time b --merge-times --duplicates keep    | --duplicates
etl {given}/edges.parquet {out} --split-edges 0.5 0.1 0.1                   | --split-edges
etl {given}/edges.parquet {out} --split-nodes nan 0.5 0.5                   | --split-nodes
generate sbm {out} --nodes 5 --blocks 6                                     | blocks
generate sbm {out} --train 0.9 --valid 0.2                                  | train
generate sbm {out} --features sparse --width 3                              | width
generate kg {out} --valid 0.5 --test 0.5                                    | valid
generate zoo {out} --least-degree 9 --most-degree 8                         | --least-degree
generate rmat {out} --memory lots                                           | --memory
partition {given}/graph -k 0                                                | -k
partition {given}/graph -k 2 --method voodoo                                | --method
walk {given}/graph {out} --p 2                                              | --p
walk {given}/graph {out} --stop 0.5                                         | --stop
walk {given}/graph {out} --app metapath                                     | --schema
walk {given}/graph {out} --app metapath --schema 0                          | metapath
walk {given}/graph {out} --app custom                                       | --weight
walk {given}/graph {out} --app custom --weight weight                       | --weight
walk {given}/graph {out} --app custom --weight 1 --sampler alias            | --sampler
walk {given}/graph {out} --temporal                                         | times
walk {given}/graph {out} --since 1                                          | times
walk {given}/graph {out} --start 1 --fraction 0.5                           | --start
walk {given}/graph {out} --app metapath --schema 0 --restart 0.5            | --restart
walk {given}/graph {out} --parts 3 --placement replicated                   | --placement
walk {given}/graph {out} --parts 3 --cluster threads                        | threads
word2vec train {given}/graph {out} --min-count 2                            | --min-count
word2vec train {given}/graph {out} --max-vocab 7                            | --max-vocab
word2vec train {given}/graph {out} --column path                            | --column
word2vec train {given}/graph {out} --same-walks                             | --same-walks
word2vec train {given}/graph {out} --min-lr 0.5                             | --min-lr
word2vec train {given}/graph {out} --shards 4                               | --shards
word2vec train {given}/graph {out} --app metapath                           | --schema
word2vec train {given}/walks {out} --length 40                              | --length
word2vec train {given}/walks {out} --graph {given}/graph --walks 20         | --walks
embed train {given}/graph {out} --parts 2 --partitions 6                    | partitions
embed train {given}/graph {out} --parts 300                                 | 300
embed train {given}/graph {out} --chunk 2000                                | --chunk
embed train {given}/graph {out} --partitions 1 --order beta                 | --order
embed train {given}/graph {out} --n3 0.1 --l2 0.1                           | --n3
embed train {given}/graph {out} --reciprocal --corrupt tail                 | --corrupt
gnn train {given}/graph {out} --heads 2                                     | --heads
gnn train {given}/graph {out} --momentum 0.5                                | --momentum
gnn train {given}/graph {out} --optimizer sgd --beta1 0.5                   | --beta1
gnn train {given}/graph {out} --step-every 5                                | --step-every
gnn train {given}/graph {out} --layers 1 --hidden 7                         | --hidden
order -k 200 --capacity 5                                                   | capacity
gnn train {given}/graph {out} --model gat --order aggregate                 | --order
gnn train {given}/graph {out} --model sage --aggregate max --weighted       | --weighted
gnn train {given}/graph {out} --no-overlap                                  | overlap
gnn train {given}/graph {out} --measure-overlap 7                           | overlap
gnn train {given}/graph {out} -k 2 --cluster threads                        | threads
gnn predict {given}/run {out} --split-by stratum                            | --split-by
centrality {given}/edges.parquet {out} --verify                             | --verify
centrality {given}/graph {out} --graph-id a                                 | --graph-id
centrality {given}/graph {out} --metrics triangles --directed               | --directed
centrality {given}/graph {out} --metrics closeness,closure                  | closure
centrality {given}/graph {out} --samples 3 --epsilon 0.1                    | --epsilon
centrality {given}/graph {out} --metrics diameter --samples 3               | diameter
centrality {given}/graph {out} --metrics closeness --endpoints              | betweenness
centrality {given}/graph {out} --metrics closeness --alpha 0.5              | --alpha
centrality {given}/graph {out} --personalization {given}/edges.parquet      | --personalization
similar {given}/vectors 3 --all {out}                                       | --all
similar {given}/vectors 3 --resume                                          | --resume
word2vec evaluate {given}/vectors --labels {given}/graph --restrict 2       | --restrict
vectors export {given}/vectors {out} --format voodoo                        | --format
embed export {given}/embedded {out} --graph {given}/graph                   | --graph
gnn train {given}/graph {out} -k 2 --cluster mpi -n 1                       | -k 2
walk {given}/graph {out} --parts 2 --cluster mpi -n 1                       | 2
walk {given}/graph {out} --cluster threads --hosts h1:2                     | --hosts
walk {given}/graph {out} --cluster moon                                     | moon
walk {given}/graph {out} --cluster mpi -n 2 --hosts h1:none                 | h1:none
walk {given}/graph {out} --cluster mpi -n 2 --interface ib7                 | ib7
walk {given}/graph {out} --cluster mpi --device cpu --device-pool 1GB       | --device-pool
walk {given}/graph {given}/graph --overwrite                                | {given}/graph
etl {given}/edges.parquet {given} --source a --target b --overwrite         | {given}
centrality {given}/edges.parquet {given} --source a --target b --overwrite  | {given}
word2vec train {given}/walks {given}/walks --overwrite                      | {given}/walks
"""


@pytest.mark.parametrize("row", ROWS.strip().splitlines(), ids=lambda row: " ".join(row.split()))
def test_a_wrong_combination(row, given, tmp_path):
    line, named = (
        part.strip() for part in row.format(given=given, out=tmp_path / "out").split("|")
    )
    before = sorted(given.rglob("*"))
    refused(line.split(), tmp_path, named, codes=(2,))
    assert sorted(given.rglob("*")) == before
