"""TensorBoard's own reader finds grouped tags, and the config in its table of hyperparameters."""

from dataclasses import replace

from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups

from rnd.config import Config, WriterOptions
from rnd.metrics.metrics import RunInfo
from rnd.metrics.tensorboard import COMPARED, TensorBoardWriter

ROW = {"iteration": 1, "frames": 512, "updates": 16, "episodes": 2, "return_mean": 3.5, "return_best": 7.0}
ROW |= {"length_mean": 20.0, "success": None, "rooms": 1, "places": 1, "bonus_raw": 0.5, "bonus_max": 1.0}
ROW |= {"bonus_scaled": 0.1, "bonus_scale": 2.0, "return_int": 0.3, "policy_loss": 0.1, "value_ext_loss": 0.2}
ROW |= {"value_int_loss": 0.3, "bonus_loss": 0.4, "approx_kl": 0.01, "clip_fraction": 0.1, "entropy": 1.0, "loss": 0.6}
ROW |= {"bonus_spread": 0.5, "bonus_share": 0.2}


def written(folder, config):
    for frames in (0, 512):  # a run that was resumed
        writer = TensorBoardWriter(RunInfo(folder, config, frames), WriterOptions())
        writer.write(ROW | {"frames": frames + 512}, {"seconds": 1.0, "frames_per_second": 512.0})
        writer.close()
    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(folder / "tensorboard"))
    return multiplexer.Reload()


def test_tags_are_grouped(tmp_path):
    multiplexer = written(tmp_path, Config())
    tags = multiplexer.GetAccumulator(".").Tags()["tensors"]
    scalars = [tag for tag in tags if not tag.startswith("_")]
    groups = {group: {t.split("/")[1] for t in scalars if t.startswith(group + "/")} for group in ("bonus", "time")}
    assert {tag.split("/")[0] for tag in scalars} == {"rollout", "loss", "bonus", "time"}
    bonus = {"bonus_raw", "bonus_max", "bonus_scaled", "bonus_scale", "return_int", "bonus_spread", "bonus_share"}
    assert groups["bonus"] == bonus
    assert groups["time"] == {"iteration", "updates", "seconds", "frames_per_second"}
    assert {"loss/bonus_loss", "loss/entropy", "rollout/return_mean", "rollout/episodes"} <= set(scalars)
    assert len(scalars) == len(ROW) - 2 + 2  # success has no value yet, frames are the axis


def test_the_config_is_the_table_of_hyperparameters_of_one_run(tmp_path):
    config = replace(Config(), lr=3e-4, seed=7, bonus="dynamics")
    multiplexer = written(tmp_path, config)
    assert list(multiplexer.Runs()) == ["."]  # add_hparams of torch makes a second one in a subfolder
    context = backend_context.Context(TBContext(data_provider=MultiplexerDataProvider(multiplexer, str(tmp_path))))
    here = RequestContext()
    found = context.experiment_from_metadata(here, "", True, context.hparams_metadata(here, ""), None)
    assert {info.name.tag for info in found.metric_infos} == set(COMPARED)
    request = api_pb2.ListSessionGroupsRequest(slice_size=10, allowed_statuses=[api_pb2.STATUS_SUCCESS])
    for name in ("lr", "seed", "bonus", "env.id"):
        request.col_params.add(hparam=name, include_in_result=True)
    (group,) = list_session_groups.Handler(here, context, "", request).run().session_groups
    values = {name: value.number_value or value.string_value for name, value in group.hparams.items()}
    assert values == {"lr": 3e-4, "seed": 7, "bonus": "dynamics", "env.id": config.env.id}
    assert "out" not in {info.name for info in found.hparam_infos}  # what is written and where compares nothing
