"""The list of experiments. Each part takes less than ten minutes and writes docs/results/NAME.json."""

from __future__ import annotations

from fnmatch import fnmatch

from benchmarks.experiments import Experiment


def chosen(names: list[str]) -> list[Experiment]:
    """The experiments with these names or patterns, as in "radii-*", or all of them."""
    return [
        found
        for found in EXPERIMENTS
        if not names or any(fnmatch(found.name, name) for name in names)
    ]


def _bench(name: str, model: str, minutes: float, options: str) -> Experiment:
    """Time a model: on a GPU twice, with empty and with filled caches."""
    on_cpu = "--device cpu" in options
    states = (
        {"seconds": 4, "states": ["cold"]} if on_cpu else {"seconds": 2, "states": ["cold", "warm"]}
    )
    settings = {"model": model, "options": options} | states
    needs = [] if on_cpu else ["gpu"]
    if "{weights}" in options:
        needs.append("weights")
    return Experiment(f"speed-{name}", "speed.bench", minutes, " ".join(needs), settings)


def _replays(log: str, radii: str) -> dict[str, str]:
    """Deciding radii with known labels and without, and input-specific sampling, on one log."""
    return {
        "known": f"{log} --method radii --radii {radii} --known-labels",
        "pilot": f"{log} --method radii --radii {radii}",
        "specific": f"{log} --method input-specific --radii {radii}",
        "specific known": f"{log} --method input-specific --radii {radii} --known-labels",
    }


def _trained(
    name: str,
    label: str,
    minutes: float,
    needs: str,
    both: str,
    train: str,
    certify: str,
    radii: list[float],
) -> Experiment:
    """Train with a noise and certify with it. `both` are the options of both commands."""
    steps = [
        f"train --method gaussian {both} {train} --out {{work}}/trained",
        f"certify --weights {{work}}/trained/weights.safetensors {both} {certify} --out {{work}}/run",
    ]
    settings = {"steps": steps, "rows": {label: "run"}, "radii": radii}
    return Experiment(name, "commands.chain", minutes, needs, settings)


def _walked(
    name: str, label: str, needs: str, options: str, radii: list[float], *before: str
) -> Experiment:
    """Certify transformed pictures up to some amounts."""
    decided = ",".join(f"{radius:g}" for radius in radii)
    certify = f"certify {options} --radii {decided} --known-labels --out {{work}}/run"
    settings = {"steps": [*before, certify], "rows": {label: "run"}, "radii": radii}
    return Experiment(name, "commands.chain", 5, needs, settings)


CIFAR10 = "--data cifar10:{data}"
BOARD_RADII = {
    0.25: [0, 0.25, 0.5, 0.75],
    0.5: [0, 0.5, 1.0, 1.5],
    1.0: [0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0],
}
SMALL = "--data fashion-mnist --sigma 0.25 --device cpu"
BEHIND = "--denoiser {work}/denoiser/weights.safetensors"
CIFAR10_MODELS = [
    f"{method}-{sigma:.2f}" for method in ("gaussian", "consistency") for sigma in (0.25, 0.5, 1)
]
SEVEN_RADII = "--method radii --radii 0,0.25,0.5,0.75,1,1.25,1.5"
CLEAN = "--weights {kept}/clean/weights.safetensors --denoiser {kept}/unet/weights.safetensors --data cifar10:{data}"
RESNET50 = "--model examples/keras_resnet50.py:resnet50 --weights {resnet50}"
UNET = "--arch unet-imagenet --data {imagenet} --sigmas 0.2,0.6 --batch 48"
ROTATION = "--epochs 60 --weight-decay 5e-4"

LOGS = [
    ["cifar10-consistency-0.25", 0.25, 0.001],
    ["cifar10-consistency-0.50", 0.5, 0.001],
    ["cifar10-consistency-1.00", 1.0, 0.001],
    ["cifar10-gaussian-0.25", 0.25, 0.01],
    ["cifar10-gaussian-0.50", 0.5, 0.01],
    ["imagenet-consistency-0.50", 0.5, 0.001],
    ["imagenet-consistency-1.00", 1.0, 0.001],
]

EXPERIMENTS = [
    Experiment("demo", "commands.demo", 1.5),
    Experiment("bundled-models", "cifar10.models", 0.1, "", {"folder": "src/smoothcert/assets"}),
    # CIFAR-10. The first three models have the paper's 24 rows.
    *(
        Experiment(
            f"board-{sigma:.2f}", "board.board", 0.2, "logs", {"sigma": sigma, "radii": radii}
        )
        for sigma, radii in BOARD_RADII.items()
    ),
    Experiment(
        "cifar10-models",
        "cifar10.models",
        0.1,
        "weights",
        {"folder": "{weights}", "names": CIFAR10_MODELS},
    ),
    *(
        Experiment(
            f"cifar10-{method}-{sigma:.2f}",
            "cifar10.plans",
            minutes,
            "gpu weights data",
            {"model": f"{method}-{sigma:.2f}", "sigma": sigma, "ceilings": ceilings},
        )
        for sigma in (0.5, 0.25, 1.0)
        for method, minutes, ceilings in (
            ("consistency", 2.0, [100_000, 500_000]),
            ("gaussian", 1.4, [100_000]),
        )
    ),
    Experiment(
        "cifar10-whole",
        "cifar10.whole",
        1.7,
        "gpu weights data",
        {"model": "consistency-0.50", "sigma": 0.5},
    ),
    # Speed. Whole commands, and `python -m benchmarks.bench` by model.
    Experiment(
        "speed-certify",
        "speed.certify",
        1,
        "gpu weights data",
        {
            "model": "gaussian-0.50",
            "sigma": 0.5,
            "plans": {
                "input-specific, decline 0.05": "--decline 0.05",
                "seven radii, known labels": f"{SEVEN_RADII} --known-labels",
                "seven radii, known labels, runner-up": f"{SEVEN_RADII} --known-labels --bound runner-up",
            },
        },
    ),
    _bench(
        "resnet110", "ResNet-110", 0.8, "--weights {weights}/gaussian-0.50.safetensors --sigma 0.5"
    ),
    _bench(
        "resnet50", "ResNet-50 at 224", 1, "--model torchvision:resnet50 --weights none --sigma 0.5"
    ),
    _bench("vit", "ViT-B/16", 1.2, "--model torchvision:vit_b_16 --weights none --sigma 0.5"),
    _bench(
        "cpu",
        "the demo's CNN",
        0.6,
        "--model fashion-cnn --data fashion-mnist --sigma 0.25 --device cpu",
    ),
    _bench(
        "cpu-resnet110",
        "ResNet-110",
        2,
        "--model cifar-resnet110 --weights none --sigma 0.5 --device cpu",
    ),
    # Other programs.
    Experiment(
        "peers",
        "peers.side_by_side",
        2,
        "gpu weights data",
        {
            "model": "gaussian-0.50",
            "data": "cifar10",
            "sigma": 0.5,
            "samples": 100_000,
            "images": 12,
        }
        | {"radius": 0.5, "batch": 1000},
    ),
    Experiment(
        "serving-cpu",
        "serving.requests",
        1,
        "",
        {
            "model": "fashion-cnn",
            "data": "fashion-mnist",
            "sigma": 0.25,
            "images": 200,
            "ceilings": [100, 1000, 10_000],
        },
    ),
    Experiment(
        "peers-cpu",
        "peers.side_by_side",
        1,
        "",
        {
            "model": "fashion-cnn",
            "data": "fashion-mnist",
            "sigma": 0.25,
            "samples": 10_000,
            "images": 20,
        }
        | {"radius": 0.25, "batch": 1000},
    ),
    # Number formats, ensembles, other training methods, and published pipelines with random weights.
    Experiment(
        "formats",
        "pipelines.formats",
        1,
        "gpu weights data",
        {
            "model": "gaussian-0.50",
            "sigma": 0.5,
            "noisy": 50_000,
            "dtypes": ["bfloat16", "float16", "float32"],
            "seconds": 2,
        },
    ),
    *(
        Experiment(
            name,
            "pipelines.networks",
            1,
            "gpu weights data",
            {
                "models": {
                    label: ",".join(f"{{weights}}/{file}.safetensors" for file in files.split())
                    for label, files in models.items()
                },
                "sigma": 0.5,
                "radii": [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5],
                "seconds": 2,
            },
        )
        for name, models in (
            (
                "ensemble-0.50",
                {
                    "one": "consistency-0.50",
                    "three": "consistency-0.50 consistency-0.50-seed1 consistency-0.50-seed2",
                },
            ),
            (
                "methods-0.50",
                {
                    method: f"{method}-0.50"
                    for method in ("gaussian", "consistency", "smoothmix", "catrs")
                },
            ),
        )
    ),
    *(
        Experiment(
            f"pipelines-{name}",
            "pipelines.behind_denoiser",
            1.5,
            "gpu timm",
            {
                "unet": unet,
                "classifier": classifier,
                "resize": resize,
                "sigma": 0.5,
                "dtype": "float16",
                "batch": batch,
                "seconds": seconds,
            },
        )
        for name, unet, classifier, resize, batch, seconds in (
            (
                "cifar10",
                "improved-diffusion, CIFAR-10",
                "timm:vit_base_patch16_224",
                "224",
                200,
                4,
            ),
            (
                "imagenet",
                "guided-diffusion, ImageNet 256",
                "timm:beit_large_patch16_512",
                "512",
                25,
                8,
            ),
        )
    ),
    Experiment(
        "pipelines-costs",
        "pipelines.costs",
        1,
        "logs",
        {
            "pipelines": {
                "CIFAR-10": {
                    "speed": "pipelines-cifar10",
                    "images": 10_000,
                    "ceiling": 100_000,
                    "log": "cifar10-consistency-0.50.tsv --sigma 0.5 --method radii --radii 0,0.25,0.5,0.75,1 "
                    "--known-labels",
                },
                "ImageNet": {
                    "speed": "pipelines-imagenet",
                    "images": 1_000,
                    "ceiling": 10_000,
                    "log": "imagenet-consistency-0.50.tsv --sigma 0.5 --method radii --radii 0,0.5,1,1.5 "
                    "--known-labels",
                },
            }
        },
    ),
    # Other norms: train with the noise, then certify.
    *(
        _trained(
            f"norms-{noise.partition(':')[0]}",
            f"`{noise}`",
            1,
            "",
            f"--data fashion-mnist --noise {noise}",
            "--arch fashion-cnn --epochs 4 --lr 0.05 --device cpu",
            f"{plan} --limit 200 --device cpu",
            radii,
        )
        for noise, plan, radii in (
            ("gaussian:0.25", "--samples 10000 --decline 0.05", [0, 0.25, 0.5]),
            ("grid-gaussian:0.25", "--samples 10000 --decline 0.05", [0, 0.25, 0.5]),
            ("uniform:1", "--samples 10000 --decline 0.05", [0, 0.25, 0.5, 0.75]),
            ("laplace:0.25", "--samples 10000 --decline 0.05", [0, 0.25, 0.5, 0.75]),
            ("splitting:1,255", "--method exact", [0, 0.25, 0.5, 0.75]),
            ("ablation:45", "--samples 10000 --decline 1", [0, 2, 4, 8]),
            ("discrete:0.2,256", "--samples 10000 --decline 0.5", [0, 1, 2]),
            ("translation:2", "--samples 10000 --decline 0.2", [0, 2, 4, 6]),
            ("brightness:0.2", "--samples 10000 --decline 0.02", [0, 0.2, 0.4, 0.6]),
            ("bands:3", "--method exact", [0, 1, 2, 3, 4]),
        )
    ),
    *(
        _trained(
            f"norms-cifar10-{name}",
            label,
            4,
            "gpu data",
            f"--data cifar10:{{data}} --noise {noise}",
            "--arch cifar-resnet18 --epochs 60 --batch 512 --lr 0.4 --schedule onecycle --weight-decay 5e-4",
            f"{plan} --skip {1 if name == 'bands' else 20}",
            radii,
        )
        for name, label, noise, plan, radii in (
            (
                "uniform-1",
                "`uniform`, sigma 1",
                "uniform:1.7321",
                "--method radii --radii 0,0.5,1 --known-labels",
                [0, 0.5, 1],
            ),
            (
                "uniform-3",
                "`uniform`, sigma 3",
                "uniform:5.1962",
                "--method radii --radii 0,0.5,1,2,4 --known-labels",
                [0, 0.5, 1, 2, 4],
            ),
            (
                "splitting-1",
                "`splitting`, sigma 1",
                f"splitting:{883 / 510!r},255",
                "--method exact",
                [0, 0.5, 1],
            ),
            (
                "splitting-3",
                "`splitting`, sigma 3",
                f"splitting:{2650 / 510!r},255",
                "--method exact",
                [0, 0.5, 1, 2, 4],
            ),
            (
                "ablation",
                "`ablation`, 75 pixels",
                "ablation:75",
                "--method fixed --samples 10000",
                [0, 2, 4, 6, 8],
            ),
            ("bands", "`bands:4`", "bands:4", "--method exact", [0, 1, 2, 3, 4]),
        )
    ),
    *(
        _trained(
            f"norms-cifar10-{noise.partition(':')[0]}",
            f"`{noise}`",
            2,
            "gpu data",
            f"--data cifar10:{{data}} --noise {noise}",
            "--arch cifar-resnet110 --epochs 30 --batch 1024 --lr 0.3 --schedule onecycle",
            f"--method radii --radii {','.join(map(str, radii))} --known-labels {bound} --skip 20",
            radii,
        )
        for noise, bound, radii in (
            ("blur:10", "--bound runner-up", [0, 1, 4]),
            ("contrast:0.3", "--bound runner-up", [0, 0.1, 0.2232]),
            ("contrast-brightness:0.3", "", [0, 0.1, 0.2232]),
        )
    ),
    # Questions to votes.
    Experiment(
        "ask-votes",
        "asking.published",
        1,
        "logs",
        {"log": "cifar10-votes-0.25.txt", "repeats": 20},
    ),
    *(
        Experiment(
            f"ask-cifar10-{method}",
            "asking.networks",
            1.5,
            "gpu weights data",
            {"models": [f"{method}-{sigma}" for sigma in ("0.25", "0.50", "1.00")], "radius": 0.5},
        )
        for method in ("gaussian", "consistency")
    ),
    # Rotations and zooms: walks over cells of turned and zoomed pictures.
    _walked(
        "transformations-fashion",
        "±5 degrees, Fashion-MNIST",
        "",
        "--model fashion-cnn --data fashion-mnist --sigma 0.25 --transform rotation --device cpu",
        [2, 5],
    ),
    *(
        _walked(
            f"transformations-{name}",
            label,
            "gpu data",
            f"--weights {{kept}}/{kind}/weights.safetensors --skip 20 {CIFAR10} --sigma 0.05 "
            f"--transform {kind} --samples {samples}",
            radii,
            f"train --arch cifar-resnet110 {CIFAR10} --sigma 0.05 --transform {kind}:{largest} "
            f"{training} --batch 1024 --lr 0.3 --schedule onecycle --out {{kept}}/{kind}",
        )
        for name, label, kind, largest, training, samples, radii in (
            ("rotation-10", "±10 degrees", "rotation", 33, ROTATION, 100_000, [5, 10]),
            ("rotation-30", "±30 degrees", "rotation", 33, ROTATION, 2_000_000, [10, 20, 30]),
            ("zoom-20", "±20 percent", "zoom", 22, "--epochs 45", 200_000, [5, 10, 20]),
        )
    ),
    # A model that never saw noise, behind a denoiser.
    Experiment(
        "denoised",
        "commands.chain",
        9,
        "",
        {
            "steps": [
                f"train --method denoiser {SMALL} --arch unet-small --epochs 2 --out {{work}}/denoiser",
                f"train --method finetune {SMALL} --model fashion-cnn-clean {BEHIND} --epochs 2 --out {{work}}/tuned",
                f"certify {SMALL} --samples 1000 --limit 100 --model fashion-cnn-clean --out {{work}}/alone",
                f"certify {SMALL} --samples 1000 --limit 100 --model fashion-cnn-clean {BEHIND} --out {{work}}/behind",
                f"certify {SMALL} --samples 1000 --limit 100 --weights {{work}}/tuned/weights.safetensors {BEHIND} "
                "--out {work}/both",
                f"certify {SMALL} --samples 1000 --limit 100 --model fashion-cnn --out {{work}}/noisy",
            ],
            "rows": {
                "the model alone": "alone",
                "behind the denoiser": "behind",
                "behind the denoiser, fine-tuned": "both",
                "a model that was trained with this noise": "noisy",
            },
            "radii": [0, 0.25, 0.5],
        },
    ),
    *(
        Experiment(
            f"cifar10-denoised-{sigma}",
            "commands.chain",
            8,
            "gpu data",
            {
                "steps": [
                    "train --sigma 0 --arch cifar-resnet18 --epochs 40 --batch 512 --lr 0.4 --schedule onecycle "
                    "--weight-decay 5e-4 --data cifar10:{data} --out {kept}/clean",
                    "train --method denoiser --arch unet --sigmas 0.1,1.0 --epochs 60 --batch 512 "
                    "--data cifar10:{data} --out {kept}/unet",
                    f"train --method finetune {CLEAN} --sigma {sigma} --epochs 15 --batch 512 --lr 0.05 "
                    "--schedule onecycle --out {work}/finetune",
                    f"train --method consistency {CLEAN} --sigma {sigma} --epochs 20 --batch 512 --lr 0.01 "
                    "--schedule onecycle --weight-decay 5e-4 --out {work}/consistency",
                    *(
                        f"certify --weights {weights}/weights.safetensors --denoiser {{kept}}/unet/weights.safetensors "
                        f"--data cifar10:{{data}} --noise gaussian:{sigma} --skip 20 --method radii --radii "
                        f"{','.join(f'{r:g}' for r in radii)} --known-labels --out {{work}}/{run}"
                        for run, weights in (
                            ("plain", "{kept}/clean"),
                            ("tuned", "{work}/finetune"),
                            ("consistent", "{work}/consistency"),
                        )
                    ),
                ],
                "rows": {
                    "behind the denoiser": "plain",
                    "behind the denoiser, fine-tuned": "tuned",
                    "behind the denoiser, fine-tuned with Consistency": "consistent",
                },
                "radii": radii,
            },
        )
        for sigma, radii in (("0.25", [0, 0.25, 0.5, 0.75]), ("0.50", [0, 0.25, 0.5, 0.75, 1, 1.5]))
    ),
    *(
        Experiment(
            f"imagenet-{sigma}",
            "commands.chain",
            8,
            "gpu imagenet resnet50",
            {
                "steps": [
                    f"train --method denoiser {UNET} --epochs 300 --out {{kept}}/denoiser",
                    f"train --method denoiser {UNET} --epochs 60 --lr 3e-4 --stability {RESNET50} "
                    "--denoiser {kept}/denoiser/weights.safetensors --out {kept}/stable",
                    f"certify {RESNET50} --denoiser {{kept}}/stable/weights.safetensors --data {{imagenet}} "
                    f"--noise gaussian:{sigma} --method radii --radii {','.join(f'{r:g}' for r in radii)} "
                    "--samples 10000 --known-labels --dtype float16 --out {work}/run",
                ],
                "rows": {f"sigma {sigma}": "run"},
                "radii": radii,
            },
        )
        for sigma, radii in (("0.25", [0, 0.25, 0.5, 0.75]), ("0.50", [0, 0.25, 0.5, 0.75, 1, 1.5]))
    ),
    # Published logs.
    Experiment(
        "radii-logs",
        "logs.replays",
        1,
        "logs",
        {
            "rows": {
                "imagenet-consistency-0.50": _replays(
                    "imagenet-consistency-0.50.tsv --sigma 0.5", "0,0.5,1,1.5"
                ),
                "cifar10-consistency-0.50": _replays(
                    "cifar10-consistency-0.50.tsv --sigma 0.5", "0,0.25,0.5,0.75,1,1.25,1.5"
                ),
                "cifar10-gaussian-0.25": _replays(
                    "cifar10-gaussian-0.25.tsv --sigma 0.25 --log-alpha 0.01", "0,0.25,0.5,0.75"
                ),
            }
        },
    ),
    Experiment(
        "radii-rivals",
        "logs.replays",
        0.5,
        "logs",
        {
            "rows": {
                name: {
                    "replay": f"cifar10-votes-0.25.txt --sigma 0.25 --radii 0,0.25,0.5,0.75 {options}"
                }
                for name, options in (
                    ("fixed, binary", "--method fixed --pilot 1000"),
                    ("fixed, runner-up", "--method fixed --pilot 1000 --bound runner-up"),
                    ("radii, binary, known labels", "--method radii --known-labels"),
                    (
                        "radii, runner-up, known labels",
                        "--method radii --bound runner-up --known-labels",
                    ),
                    (
                        "the same, `--give-up 0.1`",
                        "--method radii --bound runner-up --known-labels --give-up 0.1",
                    ),
                    ("radii, binary", "--method radii"),
                    ("radii, runner-up", "--method radii --bound runner-up"),
                )
            }
        },
    ),
    Experiment(
        "radii-over-samples",
        "logs.over_samples",
        1,
        "logs",
        {"log": "cifar10-votes-0.25.txt", "sigma": 0.25, "radii": [0, 0.25, 0.5, 0.75]},
    ),
    Experiment(
        "more-logs",
        "logs.replays",
        1,
        "logs",
        {
            "rows": {
                "one radius": _replays("cifar10-consistency-0.50.tsv --sigma 0.5", "0.5"),
                "ideal": {
                    "specific": "cifar10-consistency-0.50.tsv --sigma 0.5 --reference ideal --radii 0,0.5,1,1.5"
                },
                "imagenet-consistency-1.00": {
                    "specific": "imagenet-consistency-1.00.tsv --sigma 1"
                },
            }
        },
    ),
    Experiment(
        "radii-printed",
        "logs.outputs",
        0.5,
        "logs",
        {
            "radii": "imagenet-consistency-0.50.tsv --sigma 0.5 --method radii --radii 0,0.5,1,1.5 --known-labels",
            "runner_up": "cifar10-votes-0.25.txt --sigma 0.25 --method fixed --pilot 1000 --bound runner-up "
            "--radii 0,0.25,0.5",
            "ideal": "cifar10-consistency-0.50.tsv --sigma 0.5 --reference ideal --radii 0,0.5,1,1.5",
        },
    ),
    Experiment(
        "sequential-logs",
        "logs.sequential",
        0.5,
        "logs",
        {
            "logs": [
                ["imagenet-consistency-0.50", 0.5, 0.5, 0.001],
                ["cifar10-consistency-0.50", 0.5, 0.5, 0.001],
                ["cifar10-gaussian-0.25", 0.25, 0.25, 0.01],
            ]
        },
    ),
    Experiment(
        "norms-logs",
        "logs.replays",
        0.2,
        "logs",
        {
            "rows": {
                noise: {
                    "specific": f"imagenet-l1-{file}-2.0.tsv --noise {noise}:3.4641 --decline 0.05"
                }
                for noise, file in (("uniform", "uniform"), ("splitting", "split"))
            }
        },
    ),
    # Budgets.
    Experiment(
        "budget-price",
        "budget.price",
        5,
        "logs",
        {"logs": LOGS, "figure": "cifar10-consistency-0.50"},
    ),
    Experiment("budget-limits", "limits.limits", 10, "logs", {"logs": LOGS[-2:], "decline": 0.1}),
    Experiment("budget-estimates", "budget.estimates", 0.5, "logs", {"logs": LOGS}),
    Experiment(
        "budget-models",
        "budget.models",
        4,
        "gpu weights data",
        {
            "models": CIFAR10_MODELS,
            "shares": [0.5, 0.75, 1.0],
        },
    ),
    Experiment(
        "budget-estimates-cifar10",
        "budget.model_estimates",
        1,
        "gpu weights data",
        {"models": CIFAR10_MODELS},
    ),
    Experiment(
        "budget-forecasts", "budget.forecasts", 2, "gpu weights data", {"models": CIFAR10_MODELS}
    ),
    # Many machines.
    Experiment(
        "scale-tail",
        "scale.tail",
        1,
        "logs",
        {
            "logs": {"imagenet-consistency-0.50": 0.5, "imagenet-consistency-1.00": 1.0},
            "rate": 37_000,
            "window": 6,
        },
    ),
    # What survives.
    *(
        Experiment(
            f"reliability-{name}",
            "reliability.kills",
            minutes,
            needs,
            {"executor": name, "times": times},
        )
        for name, minutes, needs, times in (
            ("local", 9, "", 700),
            ("processes", 20, "", 200),
            ("ray", 20, "ray", 100),
        )
    ),
    Experiment("reliability-disks", "reliability.full_disks", 4, settings={"times": 30}),
    Experiment("reliability-nodes", "reliability.lost_nodes", 5, "ray", {"times": 5}),
    Experiment(
        "reliability-nodes-gpu",
        "reliability.lost_nodes",
        4,
        "ray gpu weights data",
        {"times": 3, "model": "gaussian-0.50"},
    ),
    # Many inputs.
    Experiment("size-10000", "size.commands", 0.6, settings={"size": 10_000}),
    Experiment("size-100000", "size.commands", 2.5, settings={"size": 100_000}),
    *(
        Experiment(
            f"size-1000000-part-{n}", "size.part", 6, settings={"size": 1_000_000, "number": n}
        )
        for n in (1, 2)
    ),
    Experiment("size-1000000", "size.commands", 7, settings={"size": 1_000_000}),
    # The paper, replayed on published logs.
    *(
        Experiment(
            f"paper-{table}-{model}",
            "paper.table",
            1,
            "logs",
            {"table": table, "model": model, "sigmas": sigmas, "alpha": alpha},
        )
        for table, model, sigmas, alpha in (
            ("imagenet-ad", "consistency", [0.5, 1.0], 0.001),
            ("imagenet-rd", "consistency", [0.5, 1.0], 0.001),
            ("cifar10-ad", "consistency", [0.25, 0.5, 1.0], 0.001),
            ("cifar10-ad", "gaussian", [0.25, 0.5], 0.01),  # their largest radii show this alpha
        )
    ),
    Experiment("paper-figures", "paper.figures", 3, "logs"),
    Experiment("paper-map", "paper.map_runtime", 0.1),
    # Comparing models.
    # What is certified, and what attacks achieve.
    Experiment(
        "attack-demo",
        "attacks.both_sides",
        2,
        "",
        {
            "models": {"fashion-cnn": [None, 0.25]},
            "data": "fashion-mnist",
            "radii": [0, 0.25, 0.5],
            "limit": 50,
        },
    ),
    Experiment(
        "attack-cifar10",
        "attacks.both_sides",
        5,
        "gpu weights data",
        {
            "models": {
                f"{method}-{sigma}": [f"{{weights}}/{method}-{sigma}.safetensors", float(sigma)]
                for method, sigma in (("gaussian", "0.50"), ("consistency", "0.50"))
            },
            "data": "cifar10:{data}",
            "radii": [0, 0.25, 0.5, 1],
            "skip": 20,
        },
    ),
    Experiment(
        "comparing-errors",
        "comparing.errors",
        0.2,
        settings={"repetitions": 1_000, "sequences": 5_000},
    ),
    Experiment(
        "comparing-demo",
        "comparing.demo",
        1.0,
        settings={"sigma": 0.25, "radius": 0.5, "samples": 10_000, "margin": 3},
    ),
    Experiment(
        "comparing-cifar10",
        "comparing.cifar10",
        2.0,
        "gpu data weights",
        {"radii": {"0.25": [0.25], "0.50": [0.25, 0.5]}, "margin": 1},
    ),
]
