"""What the tests of containers share: an engine, and images. Used by script/test-compose and
script/test-image."""

import argparse
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from integration import REPOSITORY, Skipped, check, run, succeeds
from processes import Process, until

BUILD_TIMEOUT_S = 1_800
STAND_IN_TIMEOUT_S = 900
STAND_IN_LABEL = "org.holdfast.stand-in"


# ---------------------------------------------------------------- engine and images


class Engine(Process):
    """A dockerd with a socket and a data folder of its own, started for this test."""

    def __init__(self):
        # Not /tmp, which may be in memory.
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-engine-", dir="/var/tmp"))
        socket_url = f"unix://{self.folder}/docker.sock"
        # It ends what it started.
        super().__init__(["dockerd", "--host", socket_url, "--data-root", self.folder / "data",
                          "--exec-root", self.folder / "run",
                          "--pidfile", self.folder / "docker.pid"], is_group_ended=False)
        os.environ["DOCKER_HOST"] = socket_url
        try:
            self.start()
        except BaseException:
            self.remove()
            raise

    def start(self):
        self.__enter__()
        until("dockerd responds", self.responds, 60)

    def responds(self):
        check(self.popen.poll() is None, f"dockerd ended:\n{self.last_lines()}")
        return succeeds(["docker", "info"])

    def restart(self):
        self.end()
        self.start()

    def remove(self):
        self.end()
        # What is left of a container in the machine's own network.
        run(["umount", self.folder / "run/netns/default"], expect=None)
        shutil.rmtree(self.folder, ignore_errors=True)
        check(not self.folder.exists(), f"{self.folder} could not be removed")


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
    result = run(["docker", "image", "inspect", "-f", format, image], expect=None)
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
        run(command, STAND_IN_TIMEOUT_S)

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
                     expect=None)
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
