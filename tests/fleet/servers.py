"""S3 servers of other people: moto, which checks who calls, and SeaweedFS."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0
KEY, SECRET = "AKIAEXAMPLEEXAMPLE00", "a-secret-of-forty-characters-0123456789a"
_SETTING_UP = 4  # calls to moto before it checks who calls


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    made = [socket.socket() for _ in range(count)]
    try:
        for each in made:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in made]
    finally:
        for each in made:
            each.close()


class S3Server:
    """A server of the S3 protocol; it is there after `start`, with all that it had before.

    Attributes:
        environment: what a client needs, with the right credentials.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        raise NotImplementedError

    def client(self) -> Any:
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.environment["AWS_ENDPOINT_URL"],
            aws_access_key_id=self.environment["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.environment["AWS_SECRET_ACCESS_KEY"],
            region_name="us-east-1",
            config=Config(retries={"total_max_attempts": 1}),
        )

    def unfinished(self, url: str) -> dict[str, str]:
        """Return the keys of the unfinished uploads into a store, by their ids.

        Other tests of this process share the bucket, and may leave uploads in it.
        """
        at = {"Bucket": "fleet", "Prefix": url.removeprefix("s3://fleet/") + "/"}
        found = self.client().list_multipart_uploads(**at).get("Uploads", ())
        return {each["UploadId"]: each["Key"] for each in found}

    def close(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def _wait(self, port: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert self.process is not None and self.process.poll() is None, self.log
            try:
                socket.create_connection(("127.0.0.1", port), 1.0).close()
                return
            except OSError:
                assert time.monotonic() < deadline, self.log
                time.sleep(0.05)

    def _spawn(self, command: list[str], **environment: str) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.folder, stdout=log, stderr=log, env={**os.environ, **environment}
            )

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")


class Moto(S3Server):
    """moto: what it holds is gone with its process."""

    def start(self) -> None:
        import boto3

        (port,) = free_ports(1)
        address = f"http://127.0.0.1:{port}"
        # A server that lets anybody in for as many calls as it takes to make a user.
        self._spawn(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            INITIAL_NO_AUTH_ACTION_COUNT=str(_SETTING_UP),
        )
        self._wait(port)
        keys = {"aws_access_key_id": "any", "aws_secret_access_key": "any"}
        made = {"endpoint_url": address, "region_name": "us-east-1", **keys}
        iam = boto3.client("iam", **made)
        iam.create_user(UserName="vehicle")
        key = iam.create_access_key(UserName="vehicle")["AccessKey"]
        allowed = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
        iam.put_user_policy(UserName="vehicle", PolicyName="all", PolicyDocument=policy)
        boto3.client("s3", **made).create_bucket(Bucket="fleet")
        self.environment = {
            "AWS_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
        }


class SeaweedFS(S3Server):
    """SeaweedFS, a server in Go, which keeps what it has in its folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._ports = free_ports(8)

    def start(self) -> None:
        program = shutil.which("weed") or str(Path(sys.executable).with_name("weed"))
        ports = self._ports
        roles = ("master", "volume", "filer", "s3")
        names = [f"{role}.port{kind}" for role in roles for kind in ("", ".grpc")]
        identity = {
            "name": "vehicle",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        config = self.folder / "s3.json"
        config.write_text(json.dumps({"identities": [identity]}))
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        self._spawn(
            [
                *(program, "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={data}"),
                *(f"-{name}={port}" for name, port in zip(names, ports, strict=True)),
                *("-filer", "-s3", f"-s3.config={config}", "-volume.max=20"),
                *("-master.volumeSizeLimitMB=64", "-volume.minFreeSpace=0"),
                *(
                    "-s3.port.iceberg=0",
                    "-s3.port.lance=0",
                ),  # one port for all servers of a machine
            ]
        )
        self._wait(ports[6])
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{ports[6]}",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }
        deadline = time.monotonic() + PATIENCE_S
        while not self._is_ready():
            assert time.monotonic() < deadline, self.log
            time.sleep(0.2)

    def _is_ready(self) -> bool:
        """Whether it keeps objects: its parts find each other some time after its port is open."""
        from botocore.exceptions import BotoCoreError, ClientError

        client = self.client()
        for bucket in ("fleet", "probe"):
            try:
                client.create_bucket(Bucket=bucket)
            except (BotoCoreError, ClientError) as error:
                if "BucketAlready" not in str(error):
                    return False
        try:
            client.put_object(Bucket="probe", Key="x", Body=b"x")
        except (BotoCoreError, ClientError):
            return False
        return True


@contextmanager
def running(kind: type[Moto] | type[SeaweedFS], folder: Path) -> Iterator[S3Server]:
    """A server of a kind for a while."""
    server = kind(folder)
    try:
        server.start()
        yield server
    finally:
        server.close()
