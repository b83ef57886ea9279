! The processes of an MPI communicator, for sessions of Bedform.
!
! Compile this file, and bedform_mpi_fortran.c, with your MPI: libbedform links no MPI.
!
!   type(bf_comm) :: comm
!   call bf_comm_from_mpi(MPI_COMM_WORLD, comm)   ! of the module mpi_f08: MPI_COMM_WORLD%mpi_val
!
! Licence: Apache-2.0 or MIT, at your choice.
module bedform_mpi
  use, intrinsic :: iso_c_binding, only: c_int
  use, intrinsic :: iso_fortran_env, only: error_unit
  use bedform, only: bf_comm
  implicit none
  private
  public :: bf_comm_from_mpi

  interface
    integer(c_int) function c_comm_from_mpi(mpi_comm, comm) bind(C, name="bf_comm_from_mpi_fortran")
      import
      integer(c_int), value :: mpi_comm
      type(bf_comm), intent(inout) :: comm
    end function
  end interface

contains

  ! Fills `comm` with the processes of `mpi_comm`; collective. `status` is an error code of MPI; without it an
  ! error stops the program. bf_comm_free frees `comm`, before MPI_Finalize.
  subroutine bf_comm_from_mpi(mpi_comm, comm, status)
    integer, intent(in) :: mpi_comm
    type(bf_comm), intent(out) :: comm
    integer, intent(out), optional :: status
    integer(c_int) :: code
    code = c_comm_from_mpi(int(mpi_comm, c_int), comm)
    if (present(status)) then
      status = code
    else if (code /= 0) then
      write (error_unit, "(a, i0)") "bedform: the communicator cannot be used: error of MPI ", code
      error stop 1
    end if
  end subroutine

end module bedform_mpi
