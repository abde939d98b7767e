"""`smoothcert train`: train a base classifier on noisy inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from smoothcert.cli.groups import NoiseOptions, expand
from smoothcert.cli.options import Device, Json, folder, print_json


@expand
def command(
    arch: Annotated[str, typer.Option(help="fashion-cnn, cifar-resnet20 or cifar-resnet110.")],
    data: Annotated[str, typer.Option(help="What to train on, such as fashion-mnist:DIR or cifar10:DIR.")],
    noise: NoiseOptions,
    epochs: Annotated[int, typer.Option(help="The number of passes over the data.")],
    out: Annotated[
        Path,
        typer.Option(
            parser=folder,
            metavar="<path>",
            help="The folder for checkpoints and weights. The same command resumes the training.",
        ),
    ],
    method: Annotated[
        Literal["gaussian", "consistency", "macer", "smoothadv"], typer.Option(help="The training method.")
    ] = "gaussian",
    copies: Annotated[int | None, typer.Option(help="Noisy copies of each input. Default: as in the paper.")] = None,
    weight: Annotated[
        float | None,
        typer.Option(help="The weight of the regularisation (lambda). Default: as in the paper for this sigma."),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="smoothadv: size of the attack. Default: as in the paper.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="smoothadv: steps of the attack. Default: 10.")] = None,
    batch: Annotated[int, typer.Option(help="Inputs per step.")] = 256,
    lr: Annotated[
        float | None, typer.Option(help="The highest learning rate. Default: 0.01 with macer, else 0.1.")
    ] = None,
    schedule: Annotated[
        Literal["cosine", "step", "onecycle"], typer.Option(help="How the learning rate changes.")
    ] = "cosine",
    weight_decay: Annotated[float, typer.Option(help="L2 penalty.")] = 1e-4,
    seed: Annotated[int, typer.Option(help="The seed of initial weights, order, augmentation and noise.")] = 0,
    device: Device = "auto",
    dtype: Annotated[Literal["auto", "float32", "bfloat16"], typer.Option(help="auto: bfloat16 on CUDA.")] = "auto",
    compile: Annotated[Literal["auto", "none", "default"], typer.Option(help="auto: default on CUDA.")] = "auto",
    json: Json = False,
) -> None:
    """Train a base classifier for smoothing. Run it again to resume. With --sigma 0, it trains without noise."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from smoothcert.datasets import load_dataset
    from smoothcert.training import Epoch, Recipe, method_named, train

    recipe = Recipe(
        arch,
        method_named(method, **_noise(noise), copies=copies, weight=weight, epsilon=epsilon, steps=steps),
        epochs=epochs,
        batch=batch,
        learning_rate=lr,
        schedule=schedule,
        weight_decay=weight_decay,
        seed=seed,
    )
    training, validation = load_dataset(data, train=True), load_dataset(data)
    noisy = "noisy " if recipe.method.sigma else ""
    held_out = validation.fingerprint != training.fingerprint

    console = Console(stderr=True, highlight=False)
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    per_epoch = len(training) // batch * batch
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("training", total=epochs * per_epoch)

        def show(epoch: Epoch) -> None:
            progress.update(task, completed=epoch.number * per_epoch)
            left = (epochs - epoch.number) * len(training) / epoch.images_per_second
            console.print(
                f"epoch {epoch.number}/{epochs}  loss {epoch.loss:.4f}  {noisy}accuracy: training "
                f"{epoch.train_accuracy:.1%}, {'validation' if held_out else 'afterwards'} {epoch.accuracy:.1%}  "
                f"{epoch.images_per_second:,.0f} images/s  {left:,.0f} s left",
                soft_wrap=True,
            )

        trained = train(
            recipe,
            training,
            validation,
            out=out,
            device=device,
            dtype=dtype,
            compile=compile,
            on_step=lambda images: progress.advance(task, images),
            on_epoch=show,
        )
    if json:
        print_json(
            {"weights": str(trained.weights), "accuracy": trained.accuracy, "epochs": epochs}
            | {"epochs_now": trained.epochs_now}
        )
        return
    state = "complete already" if not trained.epochs_now else f"trained {trained.epochs_now} of {epochs} epochs"
    judged = "validation" if held_out else "training"
    print(f"{state}: {trained.accuracy:.1%} of {noisy}{judged} inputs right, weights in {trained.weights}")


def _noise(options: NoiseOptions) -> dict[str, Any]:
    """The noise as `method_named` takes it. There is no smoothing noise of sigma 0, but training without noise."""
    without = options.sigma == 0 and options.noise is None
    return {"sigma": 0.0} if without else {"noise": options.build()}
