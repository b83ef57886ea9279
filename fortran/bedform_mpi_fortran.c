/* The C part of the Fortran module bedform_mpi: compile it with your MPI.
 *
 * Licence: Apache-2.0 or MIT, at your choice. */
#include <bedform_mpi.h>

int bf_comm_from_mpi_fortran(int mpi, bf_comm *comm);

int bf_comm_from_mpi_fortran(int mpi, bf_comm *comm) {
  return bf_comm_from_mpi(MPI_Comm_f2c((MPI_Fint)mpi), comm);
}
