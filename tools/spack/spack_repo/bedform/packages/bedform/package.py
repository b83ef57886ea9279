"""Build Bedform with Spack from a checkout: docs/c-api.md has the commands."""

from spack.package import (
    EnvironmentModifications,
    Prefix,
    Spec,
    default_args,
    depends_on,
    determine_number_of_jobs,
    extends,
    license,  # noqa: A004 - Spack's name
    run_after,
    variant,
    version,
    when,
    working_dir,
)
from spack_repo.builtin.build_systems.makefile import MakefilePackage
from spack_repo.builtin.build_systems.python import PythonPipBuilder


class Bedform(MakefilePackage):
    """Storage for scientific arrays whose layout takes the shape of the reads over it."""

    # No `git`: `spack dev-build` and `spack develop --path` name the checkout.
    version("main", branch="main")

    license("Apache-2.0 OR MIT")

    variant(
        "libs",
        default="shared,static",
        values=("shared", "static"),
        multi=True,
        description="Which C libraries to install",
    )
    variant("mpi", default=True, description="Depend on MPI, which sessions of many processes use")
    variant("python", default=False, description="Install the Python package")

    with default_args(type="build"):
        # Zstandard, Blosc and the cryptography of TLS are written in C.
        depends_on("c")
        depends_on("rust@1.89:")

    # Programs find the library through pkg-config.
    depends_on("pkgconfig", type="run")
    # The library does not link MPI: programs compile bedform_mpi.h with their own.
    depends_on("mpi", when="+mpi", type=("link", "run"))

    with when("+python"):
        extends("python")
        with default_args(type="build"):
            depends_on("py-pip")
            depends_on("py-maturin@1.9:1")
        with default_args(type=("build", "run")):
            depends_on("python@3.11:")
            depends_on("py-numpy@2:")
            depends_on("py-xarray@2025.1:")
            depends_on("py-h5py@3.11:")
            depends_on("py-typer@0.15:")
            depends_on("py-rich@13.7:")
            depends_on("py-mpi4py@4.1:", when="+mpi")

    # `make test` would install the development tools from PyPI.
    build_time_test_callbacks = ()

    def setup_build_environment(self, env: EnvironmentModifications) -> None:
        """Let cargo use as many cores as Spack may."""
        env.set("CARGO_BUILD_JOBS", str(determine_number_of_jobs(parallel=True)))

    def build(self, spec: Spec, prefix: Prefix) -> None:
        """Do nothing: `make install` builds the targets that it installs."""

    @property
    def install_targets(self) -> list[str]:
        """Return the arguments of `make`."""
        kinds = [kind for kind in ("shared", "static") if self.spec.satisfies(f"libs={kind}")]
        return ["install", f"PREFIX={self.prefix}", f"LIBS={' '.join(kinds)}"]

    @run_after("install", when="+python")
    def install_python(self) -> None:
        """Install the Python package with maturin."""
        with working_dir("python"):
            options = PythonPipBuilder.std_args(self)
            self.module.pip(*options, f"--prefix={self.prefix}", ".")
