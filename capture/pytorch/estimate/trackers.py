"""Experiment trackers and hubs that a script tells to log or upload, whatever the environment says.

The environment keeps them offline (estimate.go), but a script may choose otherwise in its code. The estimate
would then wait for a server, or the script would end because there is none. So we take the choice away once
the library is imported.
"""

import functools
import os

from .kernels import after_import


def keep_trackers_offline(run):
    """Have trackers log nothing and hubs take nothing."""
    changes = {
        "wandb": lambda module: _weights_and_biases(run, module),
        "mlflow.tracking._tracking_service.utils": lambda module: _mlflow(run, module),
        "huggingface_hub.hf_api": lambda module: _hub(run, module),
    }
    for name, change in changes.items():
        after_import(name, change)


def _weights_and_biases(run, module):
    init = module.init

    @functools.wraps(init)
    def disabled(*args, **kwargs):
        run.note("wandb.init was called and logs nothing")
        return init(*args, **dict(kwargs, mode="disabled"))

    module.init, module.login = disabled, lambda *args, **kwargs: True


def _mlflow(run, module):
    """All of MLflow asks this module where to log. Where is as in estimate.go."""
    uri = "file://" + os.path.join(run.folder, "mlruns")

    def ours(told=None):
        return uri

    def told(uri, *args):
        run.note("MLflow was given a server and logs nothing there")

    module._resolve_tracking_uri, module.get_tracking_uri, module.set_tracking_uri = ours, ours, told


UPLOADS = (
    "create_repo create_branch create_tag delete_repo delete_branch delete_tag delete_file delete_files "
    "delete_folder move_repo update_repo_settings upload_file upload_folder upload_large_folder "
    "create_commit preupload_lfs_files super_squash_history"
).split()


def _hub(run, module):
    def left_out(name):
        def nothing(self, *args, **kwargs):
            run.note("a call of huggingface_hub that changes a repository was skipped: %s" % name)
            repo = kwargs.get("repo_id", args[0] if args and isinstance(args[0], str) else "user/model")
            if name == "create_repo":
                return module.RepoUrl("https://huggingface.co/%s" % repo)
            if name in ("upload_file", "upload_folder", "create_commit"):
                done = module.CommitInfo(
                    commit_url="https://huggingface.co/%s/commit/0" % repo,
                    commit_message="",
                    commit_description="",
                    oid="0",
                )
                return self.run_as_future(lambda: done) if kwargs.get("run_as_future") else done
            return None

        return nothing

    api = module.api
    for name in UPLOADS:
        if hasattr(module.HfApi, name):
            setattr(module.HfApi, name, left_out(name))
            if hasattr(module, name):
                setattr(module, name, getattr(api, name))
