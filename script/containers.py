"""What the tests of containers share: an engine, the images, an order, and steps with their
durations. Used by script/test-compose and script/test-image; script/test-wheel takes its steps."""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "load"))

import shop  # noqa: E402

BUILD_TIMEOUT_S = 1_800
STAND_IN_TIMEOUT_S = 900
COMMAND_TIMEOUT_S = 180
# Until a terminated command has removed what it made.
END_TIMEOUT_S = 120
STAND_IN_LABEL = "org.holdfast.stand-in"
ADMIN = shop.Credentials("admin", "admin", "")
BUYER = shop.Credentials("alice", "alice", "")


class Failed(Exception):
    """A step that did not hold."""


class Skipped(Exception):
    """The reason why the test cannot run here."""


def run(command, timeout=COMMAND_TIMEOUT_S, env=None, check=True):
    """Runs a command; returns it with its output. Raises if it fails and `check` is set."""
    try:
        result = subprocess.run(command, cwd=REPOSITORY, env=env, text=True, timeout=timeout,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{' '.join(command)} took longer than {timeout} s\n{error.stdout}") from None
    if check and result.returncode != 0:
        last = "\n".join(result.stdout.strip().splitlines()[-25:])
        raise Failed(f"{' '.join(command)} failed ({result.returncode}):\n{last}")
    return result


class Background:
    """A command beside the test, in a session of its own: a signal to the test's process group
    would not let it remove what it made. It is terminated with the block."""

    def __init__(self, command):
        self.command = command
        self.output = tempfile.TemporaryFile("w+", errors="replace")

    def __enter__(self):
        self.process = subprocess.Popen(self.command, cwd=REPOSITORY, stdin=subprocess.DEVNULL,
                                        stdout=self.output, stderr=self.output,
                                        start_new_session=True)
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            # The group: a shell acts on it only when the command that it waits for has ended.
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def wait(self, timeout):
        """Raises if it fails or takes longer."""
        what = " ".join(self.command)
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failed(f"{what} took longer than {timeout} s") from None
        if code != 0:
            raise Failed(f"{what} failed ({code})")

    def read(self):
        self.output.seek(0)
        return self.output.read()


def succeeds(command, timeout=COMMAND_TIMEOUT_S):
    try:
        return run(command, timeout, check=False).returncode == 0
    except (Failed, OSError):
        return False


def until(what, is_true, timeout_s):
    end = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() > end:
            raise Failed(f"not within {timeout_s} s: {what}")
        time.sleep(0.2)


class Steps:
    """Prints each step and its duration."""

    def __init__(self):
        self.began = time.monotonic()

    @contextmanager
    def step(self, what):
        began = time.monotonic()
        print(f"== {what}", flush=True)
        yield
        print(f"   {time.monotonic() - began:.1f} s", flush=True)


# ---------------------------------------------------------------- engine and images


class Engine:
    """A dockerd with a socket and a data folder of its own, started for this test."""

    def __init__(self):
        self.log = tempfile.TemporaryFile("w+")
        # Not /tmp, which may be in memory.
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-engine-", dir="/var/tmp"))
        socket_url = f"unix://{self.folder}/docker.sock"
        self.command = ["dockerd", "--host", socket_url, "--data-root", str(self.folder / "data"),
                        "--exec-root", str(self.folder / "run"),
                        "--pidfile", str(self.folder / "docker.pid")]
        os.environ["DOCKER_HOST"] = socket_url
        try:
            self.start()
        except BaseException:
            self.remove()
            raise

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log, start_new_session=True)

        def is_ready():
            if self.process.poll() is not None:
                self.log.seek(0)
                last = self.log.read().strip().splitlines()[-3:]
                raise Failed("dockerd ended:\n" + "\n".join(last))
            return succeeds(["docker", "info"])

        until("dockerd responds", is_ready, 60)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(90)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def restart(self):
        self.stop()
        self.start()

    def remove(self):
        self.stop()
        # What is left of a container in the machine's own network.
        run(["umount", str(self.folder / "run/netns/default")], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.folder.exists():
            raise Failed(f"{self.folder} could not be removed")


def find_engine(options):
    """Returns the engine that was started for this test, or None if one was running."""
    if not shutil.which("docker"):
        raise Skipped("there is no docker command")
    engine = None
    if not succeeds(["docker", "info"], 30):
        if not options.start_engine:
            raise Skipped("no Docker engine responds (`docker info`)")
        if not shutil.which("dockerd") or os.geteuid() != 0:
            raise Skipped("no Docker engine responds, and there is no dockerd that this user may "
                          "start")
        engine = Engine()
    return engine


def official_images(file, with_rust=True):
    """The images of other projects that a file names."""
    text = (REPOSITORY / file).read_text()
    images = re.findall(r"(?:FROM|image:) ((?:debian|rust|postgres|redis|nginx):\S+)", text)
    images = list(dict.fromkeys(images))
    return [image for image in images if with_rust or not image.startswith("rust:")]


def has_image(image):
    return succeeds(["docker", "image", "inspect", image])


def is_stand_in(image):
    format = f'{{{{index .Config.Labels "{STAND_IN_LABEL}"}}}}'
    result = run(["docker", "image", "inspect", "-f", format, image], check=False)
    return result.returncode == 0 and result.stdout.strip() == image


class Images:
    """The image of the shop and those that it needs."""

    def __init__(self, binary):
        self.binary = binary
        self.name = f"holdfast-test-{os.getpid()}"
        self.pulled, self.stand_ins = [], []

    def prepare(self, *files):
        """Pulls the images that these files name, or makes stand-ins."""
        with_rust = not self.binary
        named = [image for file in files for image in official_images(file, with_rust)]
        missing = [it for it in named if not has_image(it)]
        for image in missing:
            if not succeeds(["docker", "pull", "--quiet", image], 300):
                break
            self.pulled.append(image)
        else:
            return
        print("   official images cannot be pulled: using stand-ins", flush=True)
        self.stand_ins += [it for it in missing if it not in self.pulled]
        command = ["script/stand-in-images", *files, *(["--rust"] if with_rust else [])]
        with Background(command) as stand_ins:
            try:
                stand_ins.wait(STAND_IN_TIMEOUT_S)
            except Failed as error:
                last = "\n".join(stand_ins.read().strip().splitlines()[-25:])
                raise Failed(f"{error}:\n{last}") from None

    def build(self):
        """Makes the image of the binary, or of the sources if there is none that runs in it."""
        if self.binary and not self.build_from_binary():
            self.binary = None
            self.prepare("Dockerfile")
        if not self.binary:
            run(["docker", "build", "--tag", self.name, "."], BUILD_TIMEOUT_S)

    def build_runtime(self):
        """Makes the stage that runs the shop, without its program."""
        run(["docker", "build", "--target", "runtime", "--tag", f"{self.name}-runtime", "."],
            BUILD_TIMEOUT_S)

    def build_from_binary(self):
        self.build_runtime()
        with tempfile.TemporaryDirectory(prefix="holdfast-image-") as folder:
            program = Path(folder, "holdfast")
            shutil.copy(self.binary, program)
            program.chmod(0o755)
            succeeds(["strip", "--strip-debug", str(program)])
            Path(folder, "Dockerfile").write_text(
                f"FROM {self.name}-runtime\nCOPY holdfast /usr/local/bin/\n")
            run(["docker", "build", "--tag", self.name, folder], BUILD_TIMEOUT_S)
        result = run(["docker", "run", "--rm", "--network", "none", self.name, "--version"],
                     check=False)
        if result.returncode != 0:
            print(f"   {self.binary} does not run in the image, compiling the sources instead"
                  f" ({result.stdout.strip()})", flush=True)
        return result.returncode == 0

    def remove(self):
        stand_ins = [image for image in self.stand_ins if is_stand_in(image)]
        for image in [self.name, f"{self.name}-runtime", *self.pulled, *stand_ins]:
            if has_image(image):
                succeeds(["docker", "image", "rm", image])


def clean_up(engine, images):
    """Removes the test's own engine, with all its images, or from another one what was added."""
    if engine:
        engine.remove()
    elif images:
        images.remove()


# ---------------------------------------------------------------- an order


def place_order(base):
    """Orders one unit of the first item of the catalogue; returns the order's path."""
    token = shop.sign_in(base, BUYER)
    _, _, items = shop.call(base, "GET", "/api/items", token)
    sku = next(item["sku"] for item in items["items"] if item["stock"] > 0)
    status, _, body = shop.call(base, "POST", "/api/orders", token, shop.order_of(sku),
                                shop.new_key())
    if status != 201:
        raise Failed(f"an order got {status}: {body}")
    return f"/api/orders/{body['id']}"


def check_order(base, path):
    status, _, body = shop.call(base, "GET", path, shop.sign_in(base, BUYER))
    if status != 200:
        raise Failed(f"the order {path} is lost: {status} {body}")


# ---------------------------------------------------------------- the command


def parse_options(name, description, add_arguments=lambda parser: None):
    parser = argparse.ArgumentParser(
        prog=name, description=description.partition("\n\n")[2],
        epilog="Exit code 0: passed, or skipped. 1: failed, or not possible although CI is set and "
               "there is a docker command.")
    parser.add_argument("--binary", metavar="FILE",
                        help="use this program if it runs in Debian bookworm, instead of compiling "
                             "one in the image")
    parser.add_argument("--start-engine", action="store_true",
                        help="start dockerd with a data folder of its own if no engine responds, "
                             "and end it (as root)")
    add_arguments(parser)
    return parser.parse_args()


END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end(number, _):
    # A second one would interrupt the removal of what the test made. Its commands inherit this.
    for other in END_SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)


def run_test(name, test):
    """Runs a test and reports its outcome; returns the exit code."""
    for number in END_SIGNALS:
        signal.signal(number, end)
    began = time.monotonic()
    try:
        test()
    except Skipped as reason:
        if os.environ.get("CI") and shutil.which("docker"):
            print(f"{name}: FAILED, as CI is set: {reason}", file=sys.stderr)
            return 1
        print(f"{name}: SKIPPED: {reason}")
        return 0
    except (Failed, shop.ScriptError) as error:
        print(f"{name}: FAILED: {error}", file=sys.stderr)
        return 1
    print(f"{name}: passed in {time.monotonic() - began:.0f} s")
    return 0
