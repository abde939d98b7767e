import numpy as np
import pytest
import torch
from PIL import Image
from tests.refusals import refused
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
)

import smoothcert as sc
from smoothcert.data import find_dataset as as_dataset
from smoothcert.data.base import first_readable, same_data
from smoothcert.data.inputs import as_input
from smoothcert.errors import InvalidInput


def test_a_list_and_a_torch_data_set_are_the_same_data():
    x, y = torch.rand(20, 3), torch.arange(20) % 4
    listed = as_dataset([(values.tolist(), int(label)) for values, label in zip(x, y, strict=True)])
    tensors = as_dataset(TensorDataset(x.clone().requires_grad_(), y))
    assert len(listed) == len(tensors) == 20
    assert listed.fingerprint == tensors.fingerprint
    torch.testing.assert_close(listed[7][0], x[7])
    assert tensors[7][1] == 3
    assert not tensors[7][0].requires_grad


@pytest.mark.parametrize("change", [0, 19])
def test_other_values_labels_or_lengths_are_other_data(change):
    data = [(np.full(3, i / 20), i) for i in range(20)]
    known = as_dataset(data).fingerprint
    assert as_dataset(data[:-1]).fingerprint != known
    for other in ((np.full(3, 0.99), change), (data[change][0], 99)):
        assert as_dataset([*data[:change], other, *data[change + 1 :]]).fingerprint != known


BYTES = np.array([[0, 51, 255]], np.uint8)


@pytest.mark.parametrize(
    "x",
    [
        BYTES,
        torch.from_numpy(BYTES),
        BYTES[:, ::-1].copy()[:, ::-1],
        (BYTES / 255).astype(">f4"),
        Image.fromarray(BYTES),
    ],
    ids=["bytes", "tensor of bytes", "reversed view", "big-endian", "image"],
)
def test_bytes_and_floats_are_the_same_input(x):
    torch.testing.assert_close(as_dataset([(x, 0)])[0][0].flatten(), torch.tensor([0, 0.2, 1]))


def test_values_outside_the_unit_interval_give_one_warning_whichever_input_has_them():
    data = as_dataset([([0.5, 0.5], 0), ([-2, 255], 0), ([-3, 255], 0)])
    with pytest.warns(UserWarning, match=r"input 1 of list: values lie in \[-2, 255\]") as told:
        assert data.fingerprint
    assert len(told) == 1


def test_whole_numbers_may_be_tokens_whose_distance_means_nothing():
    tokens = np.array([[101.0, 7592.0], [2088.0, 102.0]])
    with pytest.warns(UserWarning, match="divide pixels by 255; if they number tokens"):
        as_dataset(tokens % 256)
    for data in (tokens, list(tokens)):
        with pytest.warns(UserWarning, match="if they number tokens or categories"):
            as_dataset(data)[0]
    with pytest.warns(UserWarning, match="not in") as caught:
        as_dataset(tokens / 2 + 0.3)
    assert "tokens" not in str(caught[0].message)


@pytest.mark.parametrize("label", [3, 3.0, np.int64(3), np.array([3]), torch.tensor(3)])
def test_a_label_is_an_integer_of_any_type(label):
    assert as_dataset([(np.zeros(2), label)])[0][1] == 3


def test_a_missing_label_is_unknown():
    assert as_dataset([(np.zeros(2), None)])[0][1] == -1


X, Y = torch.rand((4, 2), generator=torch.Generator().manual_seed(0)), torch.arange(4)
MANY = torch.zeros(100, 2)  # drawn with replacement, some of them are left out


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(X, 0)])


class Loose(Dataset):
    """A data set of the user whose items are whatever `items` holds."""

    def __init__(self, *items):
        self.items, self.read = items, []

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        self.read.append(index)
        if isinstance(self.items[index], Exception):
            raise self.items[index]
        return self.items[index]


@pytest.mark.parametrize(
    "data",
    [
        (X, Y),
        (X.numpy(), Y.numpy()),
        (X.double().numpy(), Y.tolist()),
        (X.numpy(), Y.numpy()[:, None]),
        TensorDataset(X, Y),
        DataLoader(TensorDataset(X, Y), batch_size=3, shuffle=True),
        list(zip(X, Y, strict=True)),
        [{"image": x, "label": y} for x, y in zip(X, Y, strict=True)],
        [{"pixel_values": x, "labels": y, "name": "a"} for x, y in zip(X, Y, strict=True)],
        (X.tolist(), Y),
        (list(X), Y.tolist()),
        (TensorDataset(X), Y.numpy()),
        (DataLoader(TensorDataset(X)), list(Y)),
    ],
    ids=str.split(
        "tuple numpy listed-labels column tensors loader pairs dictionaries hugging-face "
        "numbers+labels list+labels tensors+labels loader+labels"
    ),
)
def test_every_common_form_is_the_same_data(data):
    dataset = as_dataset(data)
    assert [dataset[i][1] for i in range(len(dataset))] == [0, 1, 2, 3]
    assert torch.equal(torch.stack([dataset[i][0] for i in range(4)]), X)


@pytest.mark.parametrize(
    "data",
    [
        X,
        X.to_sparse(),
        X.numpy(),
        list(X),
        list(X.numpy()),
        TensorDataset(X),
        [{"x": x} for x in X],
    ],
)
def test_inputs_alone_have_unknown_labels(data):
    dataset = as_dataset(data)
    assert [dataset[i][1] for i in range(len(dataset))] == [-1] * 4
    assert torch.equal(dataset[3][0], X[3])


def test_a_hugging_face_table_is_data(tmp_path):
    datasets = pytest.importorskip("datasets")
    images = [Image.fromarray(np.full((2, 3), 51 * i, np.uint8)) for i in range(3)]
    features = datasets.Features(
        {"img": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])}
    )
    table = datasets.Dataset.from_dict({"img": images, "label": [0, 1, 0]}, features=features)
    data = as_dataset(table)
    assert (len(data), data[1][1], data.class_names) == (3, 1, ("a", "b"))
    transformed = as_dataset(
        table.with_transform(lambda rows: {"pixel_values": [torch.ones(2)], "label": [1]})
    )
    assert transformed[2][1] == 1
    assert torch.equal(transformed[2][0], torch.ones(2))
    with refused("not-data", value="DatasetDict"):
        as_dataset(datasets.DatasetDict({"train": table, "test": table}))


def test_all_inputs_of_small_data_are_hashed_also_where_they_run_code_of_the_user():
    rows = [(np.full(2, i / 1000), 0) for i in range(1000)]
    before = as_dataset(Loose(*rows)).fingerprint
    for index in (1, 500, 998):
        other = [*rows[:index], (np.zeros(2), 0), *rows[index + 1 :]]
        after = as_dataset(Loose(*other)).fingerprint
        assert not same_data(before, after)
        # Version 1.0 recorded the first hash alone, and its runs are compared by it.
        assert same_data(before.split(";")[0], after)
        relabelled = as_dataset(Loose(*other), [0] * 1000).fingerprint
        assert not same_data(as_dataset(Loose(*rows), [0] * 1000).fingerprint, relabelled)


def test_large_data_that_runs_code_of_the_user_is_not_read_completely():
    data = Loose(*[(np.broadcast_to(np.float32(0), (2**15,)), 0) for i in range(1000)])
    assert as_dataset(data).fingerprint
    assert len(data.read) < 30


def test_nested_lists_of_numbers_are_inputs_and_not_pairs_with_a_label():
    for dataset in (
        as_dataset([[0.5, 1.0], [0.25, 0.0]]),
        as_dataset([[0.5, 1.0], [0.25, 0.0]], [1, 0]),
    ):
        assert dataset[0][0].tolist() == [0.5, 1.0]
    assert dataset[0][1] == 1


def test_a_column_of_whole_numbers_beside_a_column_of_floats_is_labels():
    dataset = as_dataset((X[:, :1], Y[:, None]))
    assert [dataset[i][1] for i in range(len(dataset))] == [0, 1, 2, 3]


def test_labels_beside_pairs_replace_theirs():
    dataset = as_dataset(list(zip(X, Y, strict=True)), [3, 3, 3, 3])
    assert torch.equal(dataset[1][0], X[1])
    assert dataset[1][1] == 3


def test_labels_beside_a_data_set_read_no_inputs_and_keep_what_it_says_about_itself():
    class Named(Loose):
        name, class_names, fingerprint, levels = "mine", ("a", "b"), "known", 255

    data = Named(*[(np.full(2, i / 51), 0) for i in range(50)], OSError("disk is broken"))
    labelled = as_dataset(data, [1] * 51)
    assert set(data.read) == {0}
    assert (labelled.name, labelled.class_names, labelled.levels) == ("mine", ("a", "b"), 255)
    assert labelled[7][1] == 1
    known = {
        as_dataset(data).fingerprint,
        labelled.fingerprint,
        as_dataset(data, [0] * 51).fingerprint,
    }
    assert len(known) == 3
    assert as_dataset((data, [1] * 51)).fingerprint == labelled.fingerprint


def test_a_list_of_two_is_two_inputs_and_a_tuple_of_two_is_data_and_labels():
    for data in ([[X[0], 1], [X[1], 0]], [(X[0].tolist(), 1), (X[1].tolist(), 0)]):
        dataset = as_dataset(data)
        assert [(tuple(dataset[i][0].shape), dataset[i][1]) for i in range(2)] == [
            ((2,), 1),
            ((2,), 0),
        ]
    for data in (((X[0], 1), (X[1], 0)), (X[0], X[1])):
        with pytest.raises(InvalidInput):
            as_dataset(data)


def test_a_pair_of_arrays_may_have_whole_floats_and_unknown_labels():
    for labels in (torch.tensor([0.0, 1, -1, 1]), [0.0, 1, None, 1]):
        dataset = as_dataset((X, labels))
        assert [dataset[i][1] for i in range(4)] == [0, 1, -1, 1]
    assert [tuple(x.shape) for x, _ in as_dataset([X[0], X[1]])] == [
        tuple(X[0].shape)
    ] * 2  # two inputs, no labels


def test_inputs_that_change_from_one_reading_to_the_next_are_refused():
    class Augmented(Loose):
        def __getitem__(self, index):
            x, label = super().__getitem__(index)
            return x + torch.rand(2), label

    with refused("changing-input"):
        as_dataset(Augmented((torch.zeros(2), 0)))
    # NaN differs from itself; it is refused if it is certified.
    assert len(as_dataset(Loose((torch.full((2,), torch.nan), 0)))) == 1


@pytest.mark.parametrize("damaged", [0, 7, 15])
def test_an_input_that_cannot_be_read_does_not_stop_others(damaged):
    rows = [(np.full(2, i / 16), i) for i in range(16)]
    rows[damaged] = OSError("disk is broken")
    for data in (Loose(*rows), as_dataset(Loose(*rows))):
        dataset = as_dataset(data)
        assert (
            dataset.fingerprint
            != as_dataset(Loose(*[(np.full(2, i / 16), i) for i in range(16)])).fingerprint
        )
        assert first_readable(dataset).shape == (2,)
        with refused("user-code-failed", doing=f"reading input {damaged} of Loose") as raised:
            dataset[damaged]
        assert raised.value.fields["error"] == "OSError"
        assert "test_coerce.py, line" in raised.value.fields["place"]


def test_a_data_set_class_of_the_user_keeps_what_it_says_about_itself():
    class Named(Loose):
        name, class_names, fingerprint, levels = "mine", ("a", "b"), "known", 255

        def check_shapes(self, ids):
            raise InvalidInput("larger", "input {id} is larger", id=ids[1])

    data = as_dataset(Named((torch.zeros(2), 0), OSError("disk is broken")))
    assert (data.name, data.class_names, data.fingerprint, data.levels) == (
        "mine",
        ("a", "b"),
        "known",
        255,
    )
    with refused("user-code-failed", doing="reading input 1 of mine"):
        data[1]
    with refused("larger", id=1):
        sc.certify(lambda x: x, data, sigma=0.5, classes=2)


FINE = 0.1 + 2.0**-40


@pytest.mark.parametrize(
    "x", [np.array([FINE]), torch.tensor([FINE], dtype=torch.float64)], ids=["array", "tensor"]
)
def test_float64_is_not_rounded(x):
    for data in ([(x, 0)], (x[None], [0]), x[None], TensorDataset(torch.as_tensor(x)[None])):
        assert as_dataset(data)[0][0].item() == FINE
    assert as_dataset([([FINE], 0)])[0][0].item() == FINE  # Python's floats have the same digits


def test_large_integers_are_not_rounded():
    large, small = as_input(np.array([2**24 + 1])), as_input(np.array([2**24]))
    assert (large.item(), large.dtype, small.dtype) == (2**24 + 1, torch.float64, torch.float32)


def test_an_input_of_another_shape_is_named():
    data = [*torch.zeros(3, 2), torch.zeros(3), torch.zeros(2)]
    with refused("other-shape", id=3, which="input 3 of list"):
        sc.certify(lambda x: x, data, sigma=0.5, classes=2)


@pytest.mark.parametrize(
    ("data", "code", "fields"),
    [
        ([], "no-data", {}),
        (5, "not-data", {"value": "int"}),
        (Image.new("L", (4, 4)), "not-data", {}),
        ({"x": X, "y": Y}, "not-data", {"value": "dict"}),
        ([(X, 1, 7)], "not-data", {"value": "3 values as input 0 of list"}),
        ([(0.5, 0)], "not-data", {"value": "2 values as input 0 of list"}),
        (DataLoader(TensorDataset(X, Y), sampler=SubsetRandomSampler([1])), "unusual-loader", {}),
        (DataLoader(TensorDataset(X, Y), collate_fn=list), "unusual-loader", {}),
        (DataLoader(Stream()), "unusual-loader", {}),
        (
            DataLoader(TensorDataset(X), sampler=RandomSampler(X, num_samples=2)),
            "unusual-loader",
            {},
        ),
        (DataLoader(TensorDataset(MANY), sampler=RandomSampler(MANY, True)), "unusual-loader", {}),
        (DataLoader(TensorDataset(X), 3, drop_last=True), "unusual-loader", {}),
        ((X, Y[:3]), "other-number-of-labels", {"inputs": 4, "labels": 3}),
        ((X, [0, 1]), "other-number-of-labels", {"inputs": 4, "labels": 2}),
        ((X, torch.eye(4)), "not-one-label", {"id": 0, "count": 4}),
        ([(X, [0, 1])], "not-one-label", {"id": 0, "count": 2}),
        (
            (X, ["cat", "dog", "cat", "dog"]),
            "not-whole",
            {"name": "the label of input 0", "value": "cat"},
        ),
        (
            (X, torch.tensor([0, 0.5, 1, 1])),
            "not-whole",
            {"name": "the label of input 1", "value": 0.5},
        ),
        ([(X, 0.5)], "not-whole", {"name": "the label of input 0", "value": 0.5}),
        ([{"a": X, "b": 1}], "unknown-keys", {"where": "input 0 of list", "keys": "a, b"}),
        ([{"image": X, "label": 1, "y": 2}], "unknown-keys", {"keys": "image, label, y"}),
        ([("cat.png", 0)], "not-numbers", {"kind": "str"}),
        ([X.cfloat()], "not-numbers", {"kind": "an array of complex64"}),
        ([(None, 0)], "not-numbers", {"kind": "NoneType"}),
        ((X, [2**70, 0, 1, 2]), "not-labels", {"type": np.dtype(object)}),
        ([([[1], [1, 2]], 0)], "ragged-input", {}),
    ],
)
def test_other_objects_are_refused(data, code, fields):
    with refused(code, **fields):
        as_dataset(data)


def test_the_error_for_other_objects_says_what_data_is():
    expected = r"data must be arrays \(X, Y\), or give inputs or pairs \(input, label\) by index, .* got int"
    with pytest.raises(InvalidInput, match=expected):
        as_dataset(5)


def test_rows_of_bytes_may_be_tokens():
    with pytest.warns(UserWarning, match="tokens or categories"):
        as_dataset([np.zeros(3, np.uint8), torch.zeros(3, dtype=torch.uint8)])


def test_labels_of_text_lead_to_numbers():
    with refused("not-whole") as raised:
        as_dataset(X, ["cat", "dog", "cat", "dog"])
    assert "np.unique" in raised.value.fields["hint"]
    _, labels = np.unique(["cat", "dog", "cat", "dog"], return_inverse=True)
    assert as_dataset(X, labels)[1][1] == 1


def test_labels_in_a_data_frame_are_its_rows():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"y": [2, 0, 1, 3]})
    assert as_dataset(X, frame).labels.tolist() == [2, 0, 1, 3]
    with refused("not-one-label", id=0, count=2):
        as_dataset(X, frame.assign(z=0))


@pytest.mark.parametrize("labels", [{0: 1, 1: 0, 2: 0, 3: 0}, {0, 1, 2, 3}])
def test_labels_without_an_order_are_refused(labels):
    with refused("not-data", value=f"{type(labels).__name__} as labels"):
        as_dataset(X, labels)
